"""Finds policies for those who may see them, and tells the refusals of their domain."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from django.contrib.auth.models import User
from django.db.models import Count, Max, QuerySet

from chats.api.errors import Forbidden
from chats.ground.refusals import NotFound, Refusal
from contextpolicy import holds, imports, publish
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.plugins import MalformedImport
from contextpolicy.two_persons import SecondPersonNeeded

# The rights that the pages of the administration ask for.
SEE, ADD, CHANGE = "view_contextpolicy", "add_contextpolicy", "change_contextpolicy"
STATUS: Mapping[type[Exception], int] = {
    publish.PolicyProblems: 422,
    publish.PolicyChangedMeanwhile: 409,
    publish.PolicyInUse: 409,
    publish.PolicyNotInUse: 409,
    publish.NoSuchVersion: 404,
    SecondPersonNeeded: 409,
    BlastRadiusNeeded: 409,
    imports.PolicyExists: 409,
    imports.ReservedName: 422,
    MalformedImport: 422,
    holds.HoldIncomplete: 422,
    holds.HoldReleased: 409,
}


class PolicyNotChanged(Refusal):
    """A refusal of the domain of policies and holds, with its own code and words."""

    sentence = "{reason}"

    def __init__(self, error: Exception) -> None:
        super().__init__(reason=str(error))
        self.code = str(getattr(error, "code", self.code))
        self.status = STATUS[type(error)]
        if isinstance(error, publish.PolicyProblems):
            self.each = [
                {"code": found.code, "fields": list(found.fields), "message": found.sentence}
                for found in error.problems
            ]


@contextmanager
def told() -> Iterator[None]:
    """Let the refusals of the domain be told. Raises `PolicyNotChanged`."""
    try:
        yield
    except tuple(STATUS) as error:
        raise PolicyNotChanged(error) from error


def require(user: User, *rights: str, app: str = "contextpolicy") -> None:
    """Let nobody through whom the administration would not let through.

    Raises `Forbidden` for those who may see policies, and `NotFound` for all others.
    """
    if user.is_staff and all(user.has_perm(f"{app}.{right}") for right in rights):
        return
    if user.is_staff and user.has_perm(f"contextpolicy.{SEE}"):
        raise Forbidden
    raise NotFound


def policies() -> QuerySet[ContextPolicy]:
    """Return all policies, each with its newest number and the number of its assignments."""
    counted = {"newest_number": Max("versions__number")}
    rows = ContextPolicy.objects.select_related("current")
    return rows.annotate(**counted, places=Count("assignments", distinct=True))


def policy_for(user: User, *rights: str, slug: str) -> ContextPolicy:
    """Return the policy of that slug. Raises `Forbidden` and `NotFound`."""
    require(user, *rights)
    found = policies().filter(slug=slug).first()
    if found is None:
        raise NotFound
    return found


def version_of(policy: ContextPolicy, number: int) -> PolicyVersion:
    """Return a version by its number. Raises `NoSuchVersion`."""
    version = policy.versions.select_related("policy").filter(number=number).first()
    if version is None:
        raise publish.NoSuchVersion(number=number)
    return version
