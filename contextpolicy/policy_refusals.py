"""Refusals of changes to policies."""

from collections.abc import Collection

from django.utils.translation import gettext

from contextpolicy.engine.policy.policy import Problem


class PolicyProblems(Exception):
    """Values or locks contradict each other. `details` lists the fields and the reasons."""

    code = "policy_impossible"

    def __init__(self, found: Collection[Problem]) -> None:
        self.problems = tuple(found)
        super().__init__(" ".join(problem.sentence for problem in found))


class PolicyChangedMeanwhile(Exception):
    """There is a newer version than the one you are editing or publishing. Nothing was saved."""

    code = "policy_changed_meanwhile"

    def __init__(self, *, current: int) -> None:
        super().__init__(
            gettext(
                "Version {number} was saved while you were editing. Open the policy again and "
                "repeat your changes."
            ).format(number=current)
        )


class PolicyInUse(Exception):
    """The policy still has assignments, so it cannot be retired. Remove them first."""

    code = "policy_in_use"

    def __init__(self) -> None:
        super().__init__(gettext("This policy still has assignments. Remove them first."))


class PolicyNotInUse(Exception):
    """The policy is retired or has no active version."""

    code = "policy_not_in_use"

    def __init__(self) -> None:
        super().__init__(
            gettext("This policy is retired or has no active version. Choose another policy.")
        )


class NoSuchVersion(Exception):
    """The policy has no version with this number."""

    code = "no_such_version"

    def __init__(self, *, number: int) -> None:
        super().__init__(
            gettext(
                "This policy has no version {number}. Choose one from the table of versions."
            ).format(number=number)
        )


class PolicyNameTaken(Exception):
    """Another policy already has this name, ignoring case."""

    code = "policy_name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext(
                "A policy named “{name}” already exists (ignoring case). Choose another name."
            ).format(name=name)
        )
