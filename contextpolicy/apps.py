"""The policy app."""

from importlib import import_module

from django.apps import AppConfig
from django.db.models.signals import pre_migrate
from django.utils.translation import gettext_lazy


class ContextPolicyConfig(AppConfig):
    """The policies, the engine that applies them, and the audit log."""

    name = "contextpolicy"
    verbose_name = gettext_lazy("Context policy")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the migration guard and the receiver for deleted groups with a legal hold."""
        import_module("contextpolicy.holds")
        rollback = import_module("contextpolicy.rollback")
        pre_migrate.connect(rollback.check_plan, sender=self, dispatch_uid="ledger-rollback")
