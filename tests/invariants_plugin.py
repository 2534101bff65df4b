"""`pytest --invariants`: print which test checks which invariant of the context engine.

A test claims an invariant by its name, `test_inv_NN_…`. The run fails on an unknown number.
"""

import re
from collections import defaultdict

import pytest

LAWS = {
    1: "each message is sent, covered by the summary, or left out for a reason",
    2: "that holds after any number of compactions",
    3: "a summary covers what was really read",
    4: "order is kept; the summary stands before what was kept",
    5: "calls and results go together",
    6: "the prompt begins with a user where the provider wants that",
    7: "reasoning stays with its tool loop",
    8: "what is pending or streaming is never compacted",
    9: "the question is sent word for word, or refused",
    10: "a compaction leaves at least one complete turn",
    11: "pinned messages survive",
    12: "one oversized message cannot hold the prompt over its limit",
    13: "a cut is within its limit, says what is missing, and cuts no further",
    14: "a cut never falls inside a character",
    15: "cutting changes no stored message",
    16: "a cut is a pure function",
    17: "an estimate is not far below the truth",
    18: "files cost the same whatever they hold",
    19: "numbers of other models, failed calls and earlier compactions are no anchor",
    20: "each input token counts once",
    21: "the budget counts every part of the prompt",
    22: "policies that cannot work are refused when saved",
    23: "a system text beyond the limit is refused before any call",
    24: "after a success the next compaction waits for growth",
    25: "what was not enough is told, and the ladder ends",
    26: "failures in a row open a breaker, and the chat goes on",
    27: "without summaries no summariser is called",
    28: "a smaller window is heeded before the next reply",
    29: "marks are tested before a call and after tool output",
    30: "a summary that may not stand for messages is rejected",
    31: "a rejection changes nothing but the record of it",
    32: "an error is never stored as a summary",
    33: "the previous summary is folded once and never nested",
    34: "a summary is in the language of the chat",
    35: "the summariser knows who spoke when",
    36: "no text can leave its delimiters",
    37: "facts of pinned kinds are kept",
    38: "one compaction of a chat at a time",
    39: "a stale worker publishes nothing",
    40: "a summary of a changed history is not published",
    41: "a job delivered twice has one outcome",
    42: "a crash leaves a job that can be inspected",
    43: "no reply waits for a summary",
    44: "no transaction is open while a model writes",
    45: "a cancelled compaction is rolled back",
    46: "what is erased or edited leaves its summaries",
    47: "a branch sees summaries of its own path only",
    48: "erasure reaches every copy",
    49: "an overflow leads to one compaction and one retry",
    50: "a rate limit is no overflow",
    51: "a learned limit is stored and shown",
    52: "each attempt is recorded with its numbers",
    53: "a past prompt can be rebuilt byte for byte",
    54: "the ledger shows every change",
    55: "undo brings back the exact prompt",
    56: "a preview changes nothing and says what the run will do",
    57: "people see all messages, whatever the window",
    58: "a policy applies to later compactions only",
    59: "between two compactions the prompt only grows",
    60: "the same input gives the same output",
    61: "one giant turn can be compacted or is named",
    62: "compacting an unchanged chat again does nothing",
    63: "outcomes are distinct and visible",
    64: "coverage never moves backwards",
    65: "no limit of a message cuts system text, pins or summary",
    66: "the system text is the same after a compaction",
    67: "what a summariser cannot read is named, and nothing is skipped",
    68: "pages and filters never define coverage",
    69: "half a summary is never used",
    70: "an old summary covers only what can be proved",
}
_NAME = re.compile(r"test_inv_?(\d+)")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that prints the table instead of running tests."""
    parser.addoption("--invariants", action="store_true", help="list laws and tests")


def holders(items: list[pytest.Item]) -> dict[int, set[str]]:
    """The tests of each number; parametrised tests count once."""
    found: dict[int, set[str]] = defaultdict(set)
    for item in items:
        match = _NAME.match(item.name)
        if match:
            found[int(match.group(1))].add(item.nodeid.partition("[")[0])
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Print the table on request, and fail on unknown numbers."""
    if not config.getoption("--invariants"):
        return
    found = holders(items)
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for number, law in LAWS.items():
        tests = sorted(found.get(number, ()))
        if reporter:
            reporter.write_line(f"{number:3} {len(tests):2} tests  {law}")
            for test in tests:
                reporter.write_line(f"             {test}")
    strange = sorted(set(found) - set(LAWS))
    if strange:
        raise pytest.UsageError(f"No law has the number {strange[0]}.")
    items.clear()
