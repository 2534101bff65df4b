"""Sentences about a version of a policy: the effect of a save, and the steps left to publish."""

from django.utils import timezone
from django.utils.translation import gettext

from contextpolicy import controls
from contextpolicy.models import ContextPolicy, PolicyVersion


def describe_saved_version(policy: ContextPolicy) -> str:
    """Return the message about a saved policy: which version is active, and which is a draft."""
    policy = ContextPolicy.objects.select_related("current").get(pk=policy.pk)
    newest, active = policy.newest, policy.current
    if newest is None or newest == active:
        number = active.number if active else 0
        sentence = gettext("“{policy}” is saved. Version {number} is active.")
        return sentence.format(policy=policy, number=number)
    if active is None:
        return gettext(
            "“{policy}” is saved: version {number} is a draft. No version is active yet, so the "
            "policy cannot be assigned."
        ).format(policy=policy, number=newest.number)
    return gettext(
        "“{policy}” is saved: version {number} is a draft. Version {active} stays active until the "
        "draft is published."
    ).format(policy=policy, number=newest.number, active=active.number)


def explain_missing_count(draft: PolicyVersion) -> str:
    """Return the reason why a draft needs a count of its chats first. Empty if it needs none."""
    change = controls.build_version_change(
        draft.policy, values=draft.values, locks=draft.locks, author=None, by=None
    )
    return str(controls.check_change(change, now=timezone.now()).needs_count or "")
