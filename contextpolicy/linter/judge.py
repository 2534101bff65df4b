"""Judges a policy as it is written: what prevents saving, what works badly, what may surprise.

One function for the form, the import, programs and the shell. Each finding has the values that
would end it, tried before they are offered.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from contextpolicy.engine.policy import MalformedPolicy, PolicyValues, defaults_for, filled
from contextpolicy.linter.errors import check
from contextpolicy.linter.findings import UNSET, Finding, findings
from contextpolicy.linter.mends import mended
from contextpolicy.linter.models import model_findings
from contextpolicy.linter.thresholds import threshold_findings

WEIGHT = {"error": 0, "risk": 1, "note": 2}


def judge(values: Mapping[str, Any], *, locks: Collection[str] = ()) -> list[Finding]:
    """List all that is to be known of what a policy sets, the worst first."""
    found = list(_found(values, locks))
    found.sort(key=lambda finding: WEIGHT[finding.level])
    return [_with_a_mend_that_works(finding, values) for finding in found]


def read_whole(values: Mapping[str, Any]) -> PolicyValues | None:
    """Return what a policy sets over the defaults of its strategy; None if that cannot be read."""
    try:
        strategy = str(values.get("strategy", PolicyValues().strategy))
        return filled(values, base=defaults_for(strategy))
    except MalformedPolicy:
        return None


def with_mend(values: Mapping[str, Any], mend: Mapping[str, object]) -> dict[str, Any]:
    """Return what a policy would set after a mend."""
    kept = {name: value for name, value in values.items() if name not in mend}
    return kept | {name: value for name, value in mend.items() if value != UNSET}


def _found(values: Mapping[str, Any], locks: Collection[str]) -> Iterator[Finding]:
    read = read_whole(values)
    problems = check(values, locks=locks)
    for problem in problems:
        mend = mended(problem, read) if read else {}
        # The first field that is set is the one to change.
        field = next((name for name in problem.fields if name in values), problem.fields[0])
        yield Finding(problem.code, field, problem.sentence, "error", mend)
    if read is not None:
        yield from findings(read)
        # A default that another value leaves without effect is nobody's mistake.
        yield from (each for each in threshold_findings(read) if is_said(each, values))
        # What cannot work anywhere says nothing of models.
        yield from () if problems else model_findings(read)


def is_said(finding: Finding, values: Mapping[str, Any]) -> bool:
    """Tell whether a finding is worth saying: of a note, the policy itself must set the field."""
    return finding.level != "note" or finding.field in values


def _with_a_mend_that_works(finding: Finding, values: Mapping[str, Any]) -> Finding:
    if not finding.mend:
        return finding
    after = with_mend(values, finding.mend)
    before = {problem.code for problem in check(values)}
    left = {problem.code for problem in check(after)}
    is_gone = (finding.code, finding.field) not in {
        (other.code, other.field) for other in _found(after, ())
    }
    return finding if is_gone and not left - before else replace(finding, mend={})
