"""Checks a policy: errors that prevent saving, risks, and notes.

The form, the import, the API and the shell share `lint_policy`. Suggested fixes are tested before
they are offered.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from contextpolicy.engine.policy.policy import (
    MalformedPolicy,
    PolicyValues,
    apply_policy_fields,
    get_strategy_defaults,
)
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.linter.general_warnings import find_policy_warnings
from contextpolicy.linter.models import find_model_warnings
from contextpolicy.linter.policy_warning import UNSET, PolicyWarning
from contextpolicy.linter.suggested_fixes import suggest_fix
from contextpolicy.linter.thresholds import find_threshold_warnings
from contextpolicy.linter.tools import find_tool_warnings

WEIGHT = {"error": 0, "risk": 1, "note": 2}


def lint_policy(values: Mapping[str, Any], *, locks: Collection[str] = ()) -> list[PolicyWarning]:
    """Return all errors and warnings of a policy's fields, the most serious first."""
    found = list(_iter_warnings(values, locks))
    found.sort(key=lambda warning: WEIGHT[warning.level])
    return [_keep_working_fix(warning, values) for warning in found]


def read_whole(values: Mapping[str, Any]) -> PolicyValues | None:
    """Merge a policy's fields with the defaults of its strategy. None if they are invalid."""
    try:
        strategy = str(values.get("strategy", PolicyValues().strategy))
        return apply_policy_fields(values, base=get_strategy_defaults(strategy))
    except MalformedPolicy:
        return None


def apply_fix(values: Mapping[str, Any], fix: Mapping[str, object]) -> dict[str, Any]:
    """Return the policy's fields with a suggested fix applied. `UNSET` removes a field."""
    kept = {name: value for name, value in values.items() if name not in fix}
    return kept | {name: value for name, value in fix.items() if value != UNSET}


def _iter_warnings(values: Mapping[str, Any], locks: Collection[str]) -> Iterator[PolicyWarning]:
    read = read_whole(values)
    problems = find_policy_errors(values, locks=locks)
    for problem in problems:
        fix = suggest_fix(problem, read) if read else {}
        # The first field that is set is the one to change.
        field = next((name for name in problem.fields if name in values), problem.fields[0])
        yield PolicyWarning(problem.code, field, problem.sentence, "error", fix)
    if read is not None:
        yield from find_policy_warnings(read)
        # A default value without effect is not a mistake of the policy.
        yield from (
            each for each in find_threshold_warnings(read) if is_applicable_warning(each, values)
        )
        # Model warnings make no sense for a policy that cannot work.
        yield from () if problems else find_model_warnings(read)
        yield from () if problems else find_tool_warnings(read)


def is_applicable_warning(warning: PolicyWarning, values: Mapping[str, Any]) -> bool:
    """Return True if a warning applies; a note applies only to a field that the policy sets."""
    return warning.level != "note" or warning.field in values


def _keep_working_fix(warning: PolicyWarning, values: Mapping[str, Any]) -> PolicyWarning:
    if not warning.fix:
        return warning
    after = apply_fix(values, warning.fix)
    before = {problem.code for problem in find_policy_errors(values)}
    left = {problem.code for problem in find_policy_errors(after)}
    is_gone = (warning.code, warning.field) not in {
        (other.code, other.field) for other in _iter_warnings(after, ())
    }
    return warning if is_gone and not left - before else replace(warning, fix={})
