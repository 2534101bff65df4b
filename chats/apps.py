"""The Django configuration of the app `chats`."""

from importlib import import_module

from django.apps import AppConfig
from django.utils.translation import gettext_lazy


class ChatsConfig(AppConfig):
    """The app with the models, background jobs, pages and APIs of chats."""

    name = "chats"
    verbose_name = gettext_lazy("Chats")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the ledger's receivers and checks, and the functions that policies need."""
        import_module("chats.record.notices")
        import_module("chats.record.outbox")
        import_module("chats.record.commitment_check")
        import_module("chats.simulation.audience")
        import_module("chats.checkpoints.checks")
        import_module("chats.prompt.stored_messages")
