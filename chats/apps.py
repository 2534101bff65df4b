"""The conversation app."""

from importlib import import_module

from django.apps import AppConfig


class ChatsConfig(AppConfig):
    """Chats, turns and what people see of them."""

    name = "chats"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what hears of the ledger and what verifies it; models are loaded by now."""
        import_module("chats.record.notices")
        import_module("chats.record.outbox")
        import_module("chats.record.witness")
        import_module("chats.checkpoints.checks")
