"""The policy app."""

from django.apps import AppConfig


class ContextPolicyConfig(AppConfig):
    """What administrators decide, the engine that obeys, and the ledger of it."""

    name = "contextpolicy"
    verbose_name = "Context policy"
    default_auto_field = "django.db.models.BigAutoField"
