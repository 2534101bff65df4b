"""Permissions for policies, and conversion of domain errors to API refusals."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.db.models import Count, Max, QuerySet

from chats.ground.refusals import NotFound, Refusal
from contextpolicy import holds, imports, policy_refusals
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.plugins import MalformedImport
from contextpolicy.policy_skills import PolicySkillsRefused
from contextpolicy.two_persons import SecondPersonNeeded

# The permissions that the admin pages require.
SEE = "contextpolicy.view_contextpolicy"
ADD = "contextpolicy.add_contextpolicy"
CHANGE = "contextpolicy.change_contextpolicy"
STATUS: Mapping[type[Exception], int] = {
    policy_refusals.PolicyProblems: 422,
    policy_refusals.PolicyChangedMeanwhile: 409,
    policy_refusals.PolicyInUse: 409,
    policy_refusals.PolicyNameTaken: 409,
    policy_refusals.PolicyNotInUse: 409,
    policy_refusals.NoSuchVersion: 404,
    SecondPersonNeeded: 409,
    BlastRadiusNeeded: 409,
    imports.PolicyExists: 409,
    imports.ReservedName: 422,
    MalformedImport: 422,
    PolicySkillsRefused: 403,
    holds.HoldIncomplete: 422,
    holds.HoldReleased: 409,
}


class PolicyNotChanged(Refusal):
    """An error of the policy or hold domain, with its own code and message."""

    sentence = "{reason}"

    def __init__(self, error: Exception) -> None:
        super().__init__(reason=str(error))
        self.code = str(getattr(error, "code", self.code))
        self.status = STATUS[type(error)]
        if isinstance(error, policy_refusals.PolicyProblems):
            self.each = [
                {"code": found.code, "fields": list(found.fields), "message": found.sentence}
                for found in error.problems
            ]


@contextmanager
def translate_policy_errors() -> Iterator[None]:
    """Convert domain errors to API refusals. Raises `PolicyNotChanged`."""
    try:
        yield
    except tuple(STATUS) as error:
        raise PolicyNotChanged(error) from error


def list_policies() -> QuerySet[ContextPolicy]:
    """Return all policies, each with its newest version number and its number of assignments."""
    counted = {"newest_number": Max("versions__number")}
    rows = ContextPolicy.objects.select_related("current")
    return rows.annotate(**counted, places=Count("assignments", distinct=True))


def find_policy(slug: str) -> ContextPolicy:
    """Return the policy with this slug. Raises `NotFound`."""
    found = list_policies().filter(slug=slug).first()
    if found is None:
        raise NotFound
    return found


def find_policy_version(policy: ContextPolicy, number: int) -> PolicyVersion:
    """Return a version by its number. Raises `NoSuchVersion`."""
    version = policy.versions.select_related("policy").filter(number=number).first()
    if version is None:
        raise policy_refusals.NoSuchVersion(number=number)
    return version
