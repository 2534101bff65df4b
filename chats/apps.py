"""The conversation app."""

from importlib import import_module

from django.apps import AppConfig


class ChatsConfig(AppConfig):
    """Chats, turns and what people see of them."""

    name = "chats"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let the ledger's verification see what it commits to here; models are loaded by now."""
        import_module("chats.witness")
