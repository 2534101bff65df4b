"""The policy app."""

from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class ContextPolicyConfig(AppConfig):
    """The policies that administrators write, the engine that obeys them, and the audit ledger."""

    name = "contextpolicy"
    verbose_name = "Context policy"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Guard what the ledger commits to against migrating back, and members of held groups."""
        import_module("contextpolicy.holds")
        rollback = import_module("contextpolicy.rollback")
        pre_migrate.connect(rollback.check_plan, sender=self, dispatch_uid="ledger-rollback")
