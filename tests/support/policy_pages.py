"""Pages of policies in the administration, and the versions behind them."""

from django.urls import reverse

from contextpolicy.models import ContextPolicy, PolicyVersion


def get_policy_page(policy: ContextPolicy) -> str:
    """The policy's page."""
    return reverse("admin:contextpolicy_contextpolicy_change", args=[policy.pk])


def get_active_version(policy: ContextPolicy) -> PolicyVersion:
    """The active version."""
    version = ContextPolicy.objects.select_related("current").get(pk=policy.pk).current
    assert version is not None
    return version
