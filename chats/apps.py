"""The conversation app."""

from django.apps import AppConfig


class ChatsConfig(AppConfig):
    """Chats, turns and what people see of them."""

    name = "chats"
    default_auto_field = "django.db.models.BigAutoField"
