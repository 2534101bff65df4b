"""The policy app."""

from django.apps import AppConfig


class ContextPolicyConfig(AppConfig):
    """The policies that administrators write, the engine that obeys them, and the audit ledger."""

    name = "contextpolicy"
    verbose_name = "Context policy"
    default_auto_field = "django.db.models.BigAutoField"
