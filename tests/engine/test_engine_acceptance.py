"""A summary is checked before it may replace messages."""

import time

import pytest

from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.acceptance import (
    Verdict,
    append_lost_facts,
    find_missing_sections,
    find_unknown_urls,
    keep_sections,
)
from contextpolicy.engine.summaries.ladder import Attempt, select_next_rung
from contextpolicy.engine.text.facts import extract_facts
from tests.engine.engine_builders import COUNTER, message, step
from tests.support.summary_validation import SOURCES, VALID_SUMMARY, validate_summary


def test_a_sound_summary_is_accepted() -> None:
    assert validate_summary() == Verdict(accepted=True)


BODY = VALID_SUMMARY.replace("## Facts\n", "")
HEADINGS = "\n".join(line for line in VALID_SUMMARY.splitlines() if line.startswith("#"))


@pytest.mark.parametrize(
    ("text", "facts", "reason"),
    [
        ("", {}, "empty"),
        (" \n\t ", {}, "empty"),
        ("## Facts\n- a", {}, "too_short"),
        (VALID_SUMMARY, {"finish": "length"}, "cut_by_length"),
        (VALID_SUMMARY, {"finish": "content_filter"}, "not_finished"),
        (VALID_SUMMARY, {"finish": ""}, "not_finished"),
        (VALID_SUMMARY, {"reasoning_only": True}, "reasoning_only"),
        (VALID_SUMMARY, {"has_tool_calls": True}, "tool_call"),
        ("I'm sorry, but I can't help with that request.", {}, "refusal"),
        ("I cannot summarise this conversation.", {}, "refusal"),
        ("抱歉，我无法总结这段对话。这里没有内容可以总结。", {}, "refusal"),
        ('{"error": {"message": "Rate limit reached"}}', {}, "error_text"),
        ("Error code: 429 - too many requests", {}, "error_text"),
        ("Traceback (most recent call last):", {}, "error_text"),
        (HEADINGS, {}, "no_content"),
        (BODY, {}, "missing_sections"),
        (VALID_SUMMARY + "\nUser: and now?\nAssistant: now this", {}, "role_headers"),
        (VALID_SUMMARY + "<|im_start|>user", {}, "role_headers"),
        (VALID_SUMMARY, {"sources": [message(1, "Ann pays 40.")]}, "not_smaller"),
        (VALID_SUMMARY, {"values": PolicyValues(summary_max_tokens=20)}, "too_long"),
    ],
)
def test_inv_30_what_must_not_replace_history_is_rejected_by_name(
    text: str, facts: dict[str, object], reason: str
) -> None:
    found = validate_summary(text, **facts)
    assert not found.accepted
    assert reason in found.reasons


def test_the_previous_summary_counts_among_what_is_folded() -> None:
    previous = Summary("s", "x", 1, 2, (), 500)
    assert validate_summary(sources=[message(3, "Ann pays 40.")], previous=previous).accepted


def test_every_reason_is_named() -> None:
    found = validate_summary("Error", finish="length", has_tool_calls=True)
    assert found.reasons == (
        "too_short",
        "cut_by_length",
        "tool_call",
        "error_text",
        "missing_sections",
    )


def test_inv_32_a_summary_may_speak_of_errors_and_of_people_who_are_sorry() -> None:
    text = VALID_SUMMARY.replace("- Ann", "- User: I'm sorry, it said Error 500. Ann")
    assert validate_summary(text).accepted


@pytest.mark.parametrize("heading", ["## facts", "# Facts:", "### **x**\n## Facts ##"])
def test_headings_are_recognised_in_their_usual_forms(heading: str) -> None:
    assert find_missing_sections(VALID_SUMMARY.replace("## Facts", heading)) == ()


@pytest.mark.parametrize("sign", ["{}", "**{}**", "**{}:**", "1. {}", "2) **{}**", "__{}__:"])
def test_marks_of_a_heading_are_not_part_of_its_name(sign: str) -> None:
    text = f"## {sign.format('Facts')}\n- tea [#1]"
    assert find_missing_sections(text, ("Facts",)) == ()
    assert keep_sections(f"{text}\n## {sign.format('Notes')}\n- none", ("Facts",)) == text
    named = "1. Facts"
    assert find_missing_sections(f"## {named}\n- tea", (named,)) == ()


def test_a_heading_inside_a_sentence_is_none() -> None:
    assert find_missing_sections("the ## Facts are") == (
        "Facts",
        "Preferences",
        "Decisions",
        "Open items",
        "Done items",
    )


GERMAN = """## Facts
- Ann zahlt 40 Euro im Monat und das ist für die beiden nicht zu viel [#2]
## Preferences
## Decisions
- Wir nehmen den Zug, weil der für die Reise mit den Kindern die beste Wahl ist [#4]
## Open items
## Done items
"""


def test_inv_34_a_summary_in_another_language_is_rejected() -> None:
    made = validate_summary(GERMAN)
    assert made.reasons == ("wrong_language",)
    sources = [
        message(n, "Wir nehmen den Zug und das ist für die Reise nicht zu teuer. " * 4)
        for n in range(1, 4)
    ]
    assert validate_summary(GERMAN, sources=sources).accepted


@pytest.mark.parametrize(
    "text",
    [
        "Error: the service is overloaded.",
        '{"error": {"message": "context length exceeded"}}',
        "Traceback (most recent call last):\n  File",
        "503 Service Unavailable",
        "<html><body>Bad gateway</body></html>",
    ],
    ids=range(5),
)
def test_inv_32_an_error_never_passes_as_a_summary(text: str) -> None:
    assert "error_text" in validate_summary(text).reasons
    headed = f"{text}\n{VALID_SUMMARY}"
    assert not validate_summary(headed).accepted


NUMBERED = [
    message(n, f"Order 47{n} costs 9{n} euros, see https://x.io/{n} for more. " * 5) for n in (1, 2)
]


@pytest.mark.parametrize("earlier", [False, True], ids=["new", "earlier"])
def test_inv_37_facts_of_pinned_kinds_have_to_be_kept(earlier: bool) -> None:
    values = PolicyValues(pinned_kinds=("url", "number"))
    previous = Summary("s1", "See https://x.io/0 first.", 1, 2, (), 10) if earlier else None
    made = validate_summary(sources=NUMBERED, previous=previous, values=values)
    assert made.reasons == ("lost_facts",)
    urls = ("https://x.io/0",) if earlier else ()
    assert made.lost == (*urls, "https://x.io/1", "https://x.io/2", "471", "91", "472", "92")
    assert validate_summary(sources=NUMBERED).lost == ()
    kept = VALID_SUMMARY.replace(
        "## Preferences", "- See https://x.io/1 and https://x.io/2\n## Preferences"
    )
    only_urls = validate_summary(kept, sources=NUMBERED, values=PolicyValues(pinned_kinds=("url",)))
    assert only_urls == Verdict(accepted=True)


def test_inv_37_lost_facts_are_carried_over_mechanically_as_far_as_they_fit() -> None:
    carried = append_lost_facts(
        VALID_SUMMARY, ("471", "https://x.io/1"), max_tokens=500, counter=COUNTER
    )
    assert carried.startswith("## Facts\n- Also mentioned: 471\n- Also mentioned: https://x.io/1\n")
    assert find_missing_sections(carried) == ()
    tight = COUNTER.count(VALID_SUMMARY.strip()) + 12
    short = append_lost_facts(
        VALID_SUMMARY, ("471", "https://x.io/1"), max_tokens=tight, counter=COUNTER
    )
    assert "471" in short
    assert "x.io" not in short
    assert append_lost_facts("no heading", ("471",), max_tokens=50, counter=COUNTER) == (
        "- Also mentioned: 471\nno heading"
    )


URL = "https://a.example/trains"


@pytest.mark.parametrize(
    ("address", "sources", "previous", "is_unknown"),
    [
        (URL, SOURCES, None, True),
        (URL, [message(1, f"See {URL}, please.")], None, False),
        (URL, [step(2, f"found {URL}")], None, False),
        (URL, SOURCES, Summary("s", f"- {URL}", 1, 4, (), 9), False),
        ("https://a.example/tr… [#2]", [message(1, f"See {URL}, please.")], None, False),
        ("nothing of that kind", SOURCES, None, False),
    ],
    ids=range(6),
)
def test_an_address_that_stands_in_no_source_is_no_fact_of_the_chat(
    address: str, sources: list[Message], previous: Summary | None, is_unknown: bool
) -> None:
    text = VALID_SUMMARY.replace("40 euros a month", address)
    assert bool(find_unknown_urls(text, sources=sources, previous=previous)) is is_unknown


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("我们的官网是www.example.com/docs，请记住。", "官网是www.example.com/docs"),
        ("公式のサイトはwww.example.jpです", "サイトはwww.example.jp"),
        ("查看example.com/a", "https://example.com/a"),
    ],
)
def test_an_address_directly_after_other_scripts_is_known(said: str, written: str) -> None:
    assert find_unknown_urls(written, sources=[message(1, said)], previous=None) == ()


def test_inv_30_a_summary_with_an_unknown_address_is_rejected() -> None:
    text = VALID_SUMMARY.replace("40 euros", URL)
    assert validate_summary(text).reasons == ("unknown_url",)
    assert validate_summary(text, previous=Summary("s", f"See {URL}", 1, 2, (), 9)).accepted


FLAT = "https://example.com/flat"


@pytest.mark.parametrize(
    "written",
    [
        "**{}**",
        "_{}_",
        "~~{}~~",
        "“{}”",
        "‘{}’",
        "「{}」",
        "{}| x",
        "({})",
        "[flat]({}).",
        "`{}`",
        "{}…",
        "{}！",
        "{}、",
        "房子在{}的页面",
        "집은 {}에 있다",
        "{}/",
        "{}?!",
    ],
)
def test_what_follows_an_address_is_not_part_of_it(written: str) -> None:
    told = [message(n, f"The flat is at {FLAT}, 40 euros a month. " * 3) for n in (1, 2)]
    text = VALID_SUMMARY.replace("Ann pays", f"Ann pays {written.format(FLAT)}")
    values = PolicyValues(pinned_kinds=("url",))
    assert validate_summary(text, sources=told, values=values).accepted
    http = text.replace("https", "http")
    assert validate_summary(http, sources=told, values=values).accepted
    quoted = [message(n, f"{written.format(FLAT)} is the flat. " * 5) for n in (1, 2)]
    assert find_unknown_urls(FLAT, sources=quoted, previous=None) == ()
    other = written.format("https://ample.com/flat")
    assert find_unknown_urls(other, sources=told, previous=None) != ()


def test_brackets_in_an_address_are_part_of_it() -> None:
    wiki = "https://en.example/wiki/Oslo_(city)"
    assert extract_facts(f"(see {wiki})")["url"] == (wiki,)
    assert extract_facts(f"{FLAT}(see below")["url"] == (FLAT,)
    assert extract_facts("https://de.example/wiki/Köln")["url"] == ("https://de.example/wiki/Köln",)


def test_an_unknown_address_is_named_for_a_second_attempt() -> None:
    found = validate_summary(VALID_SUMMARY.replace("40 euros", f"40 euros ({URL})"))
    assert (found.reasons, found.unknown) == (("unknown_url",), (URL,))
    assert select_next_rung([Attempt("model", "rejected", found.reasons)]) == "model_again"


NUMBERS_PINNED = PolicyValues(pinned_kinds=("number",))


def test_a_source_mark_saves_no_pinned_amount_that_was_lost() -> None:
    told = [message(131, "The deposit is 131 euros, which we pay at the door. " * 6)]
    lost = validate_summary(
        VALID_SUMMARY.replace("40 euros a month [#2]", "[#131]"),
        sources=told,
        values=NUMBERS_PINNED,
    )
    assert (lost.reasons, lost.lost) == (("lost_facts",), ("131",))


def test_a_summary_that_drops_an_old_source_mark_is_sound() -> None:
    earlier = Summary("s", VALID_SUMMARY.replace("[#2]", "[#117]"), 1, 130, (), 60)
    told = [
        message(n, "We take the train, all of us together, as was said. " * 4) for n in (131, 132)
    ]
    assert validate_summary(sources=told, previous=earlier, values=NUMBERS_PINNED).accepted


def test_a_heading_of_many_blanks_is_judged_at_once() -> None:
    begun = time.process_time()
    validate_summary(VALID_SUMMARY + "# a" + " \t" * 20_000 + ":x")
    assert time.process_time() - begun < 2


def test_only_the_requested_sections_of_a_summary_are_kept() -> None:
    told = (
        "Here is the summary:\n\n## Facts\n- tea [#1]\n### Places\n- Oslo [#2]\n"
        "## Notes\n- none\n### Facts of life\n- no\n## facts:\n- cake [#3]\n## Mood\nGood."
    )
    assert keep_sections(told, ("Facts",)) == (
        "## Facts\n- tea [#1]\n### Places\n- Oslo [#2]\n## facts:\n- cake [#3]"
    )
    assert keep_sections("No heading.", ("Facts",)) == "No heading."


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("```markdown\n## Facts\n- tea\n```", "## Facts\n- tea"),
        ("Sure:\n<summary>\n```md\n## Facts\n- tea\n```\n</summary>\n", "## Facts\n- tea"),
        ("## Facts\n- tea\n\n---\nWritten by a model.", "## Facts\n- tea\n"),
        ("## Facts\n```sh\n# boil\n```\n- tea", "## Facts\n```sh\n# boil\n```\n- tea"),
        ("## Facts\n```sh\n# boil\n```", "## Facts\n```sh\n# boil\n```"),
        ("```\n## Facts\n```sh\n# boil\n```\n```", "## Facts\n```sh\n# boil\n```"),
        ("```\n## Facts\n- tea\n```\nIs this fine?", "## Facts\n- tea"),
        ("```\n## Facts\n```sh\nboil\n```\n- tea\n```\nFine?", "## Facts\n```sh\nboil\n```\n- tea"),
        ("<summary>\n## Facts\n- tea\n</summary>\n\nIs this fine?", "## Facts\n- tea"),
        ("<summary>\n## Facts\n- tea", "## Facts\n- tea"),
        ("<a>\n```md\n## Facts\n- tea\n```\n</a>\nIs this fine?", "## Facts\n- tea"),
        ("```\n## Facts\n```sh\nboil\n```\n- tea", "## Facts\n```sh\nboil\n```\n- tea"),
        ("## Facts\n- tea [#1]\n\nLet me know if you\nneed more.\n", "## Facts\n- tea [#1]\n"),
        ("## Facts\n1. tea\n\nIs this fine?", "## Facts\n1. tea\n"),
        ("## Facts\n- tea\n\nAnd cake [#2].", "## Facts\n- tea\n\nAnd cake [#2]."),
        ("## Facts\n- tea\n\n- cake", "## Facts\n- tea\n\n- cake"),
        ("## Facts\nAll is well.\n\nIndeed.", "## Facts\nAll is well.\n\nIndeed."),
        ("## Facts", "## Facts"),
    ],
)
def test_what_is_around_the_sections_of_a_summary_is_removed(told: str, kept: str) -> None:
    assert keep_sections(told, ("Facts",)) == kept
