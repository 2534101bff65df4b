"""Finds values that do not work with their strategy: marks, headings, summaries, turns, state."""

from contextpolicy.engine.policy.checks import SMALLEST_ROOM, Clash, estimate_tokens
from contextpolicy.engine.policy.fields import PolicyFields
from contextpolicy.engine.policy.fields.history import compute_mark_tokens
from contextpolicy.engine.text.phrases import Phrase, gettext_noop
from contextpolicy.engine.text.schema import SchemaRefused, check_schema

# The minimum tokens of a stored message: the overhead and one token of text.
SMALLEST_MESSAGE = 5
# The maximum number of headings in a summary, and the maximum characters of one.
MOST_SECTIONS, LONGEST_SECTION = 10, 60


def find_strategy_clashes(values: PolicyFields, *, limit: int, system_tokens: int) -> list[Clash]:
    """Return the problems of the strategy within a prompt limit of `limit` tokens, at least 1."""
    found = _heading_clashes(values)
    if values.strategy != "simple":
        found += _mark_clashes(values, limit)
    if values.strategy == "dynamic_summary":
        found += _summary_clashes(values, limit, system_tokens)
        found += _folding_clashes(values, limit)
        found += _turn_clashes(values)
    if values.strategy == "entity_state":
        found += _state_clashes(values)
    return found


def _heading_clashes(values: PolicyFields) -> list[Clash]:
    """Check the number, the length and the format of a summary's headings, and that they differ."""
    names = values.summary_sections
    sentence = ""
    if len(names) > MOST_SECTIONS:
        sentence = Phrase(
            gettext_noop("summary_sections has {count:,} headings. Use at most {most}."),
            count=len(names),
            most=MOST_SECTIONS,
        )
    elif len({name.casefold() for name in names}) < len(names):
        sentence = Phrase(
            gettext_noop("summary_sections contains a heading twice. Remove one of them.")
        )
    for name in names:
        if not name or name != " ".join(name.split()) or name[0] == "#" or name[-1] in "#:":
            sentence = Phrase(
                gettext_noop(
                    "The heading “{name}” in summary_sections is not valid. Write it on one line, "
                    "without extra spaces, a “#” at the start or end, or a colon at the end."
                ),
                name=name,
            )
        elif len(name) > LONGEST_SECTION:
            sentence = Phrase(
                gettext_noop(
                    "The heading “{name}…” in summary_sections is longer than {longest} "
                    "characters. Shorten it."
                ),
                name=name[:20],
                longest=LONGEST_SECTION,
            )
    return [("headings_refused", ("summary_sections",), sentence)] if sentence else []


def _mark_clashes(values: PolicyFields, limit: int) -> list[Clash]:
    """Check that the marks are in order.

    Without summaries, the low and the high mark may be equal. History then fills the available room
    exactly at each turn.
    """
    low, prepare, high = _marks(values, limit)
    summarises = values.strategy == "dynamic_summary"
    shares = (values.compact_to, values.prepare_at, values.compact_at)
    in_order = low < prepare <= high if summarises else low <= high
    if all(0 < share <= 1 for share in shares) and low > 0 and in_order:
        return []
    order = (
        "0 < compact_to < prepare_at <= compact_at <= 1"
        if summarises
        else "0 < compact_to <= compact_at <= 1"
    )
    sentence = Phrase(
        gettext_noop(
            "The sizes are out of order: compact_to is {low:,}, prepare_at {prepare:,}, "
            "compact_at {high:,} of {limit:,} prompt tokens. The order must be {order}."
        ),
        low=low,
        prepare=prepare,
        high=high,
        limit=limit,
        order=order,
    )
    names = [
        f"{name}{suffix}"
        for name in ("compact_to", "prepare_at", "compact_at")
        for suffix in ("", "_tokens")
    ]
    return [("marks_out_of_order", tuple(names), sentence)]


def _marks(values: PolicyFields, limit: int) -> tuple[int, int, int]:
    return (
        compute_mark_tokens(values.compact_to, values.compact_to_tokens, prompt_limit=limit),
        compute_mark_tokens(values.prepare_at, values.prepare_at_tokens, prompt_limit=limit),
        compute_mark_tokens(values.compact_at, values.compact_at_tokens, prompt_limit=limit),
    )


def _summary_clashes(values: PolicyFields, limit: int, system_tokens: int) -> list[Clash]:
    """Check that a summary has room for its headings, and leaves room in the prompt.

    A summary that reaches the low mark together with the system text would trigger the next summary
    at every turn.
    """
    names = ("summary_max_tokens", "compact_to", "token_budget")
    if limit < values.summary_max_tokens + SMALLEST_ROOM:
        sentence = Phrase(
            gettext_noop(
                "summary_max_tokens ({summary_max_tokens:,}) leaves less than {smallest:,} of "
                "{limit:,} prompt tokens. Lower it to {at_most:,} or raise token_budget."
            ),
            summary_max_tokens=values.summary_max_tokens,
            smallest=SMALLEST_ROOM,
            limit=limit,
            at_most=max(0, limit - SMALLEST_ROOM),
        )
        return [("summary_too_large", names, sentence)]
    headings = estimate_tokens("".join(f"## {name}\n" for name in values.summary_sections))
    if 2 * headings > values.summary_max_tokens:
        sentence = Phrase(
            gettext_noop(
                "The headings in summary_sections take about {headings:,} of "
                "{summary_max_tokens:,} tokens, more than half of a summary. Use fewer or shorter "
                "headings, or raise summary_max_tokens to {at_least:,}."
            ),
            headings=headings,
            summary_max_tokens=values.summary_max_tokens,
            at_least=2 * headings,
        )
        return [("headings_too_large", ("summary_sections", "summary_max_tokens"), sentence)]
    low = _marks(values, limit)[0]
    if values.summary_max_tokens + system_tokens < low:
        return []
    sentence = Phrase(
        gettext_noop(
            "system_text (about {system_tokens:,} tokens) and a summary of "
            "{summary_max_tokens:,} tokens reach compact_to ({low:,} tokens). Each turn would "
            "therefore start a compaction. Lower summary_max_tokens below {at_most:,}, or "
            "raise compact_to or token_budget."
        ),
        system_tokens=system_tokens,
        summary_max_tokens=values.summary_max_tokens,
        low=low,
        at_most=max(0, low - system_tokens),
    )
    return [("summary_reaches_low_mark", (*names, "system_text"), sentence)]


def _folding_clashes(values: PolicyFields, limit: int) -> list[Clash]:
    found: list[Clash] = []
    keep, threshold, size = values.keep_last_messages, values.turn_threshold, values.window_size
    most_kept = _marks(values, limit)[1] // SMALLEST_MESSAGE
    if keep >= most_kept:
        sentence = Phrase(
            gettext_noop(
                "keep_last_messages ({keep:,}) leaves no messages to summarise, because even the "
                "shortest messages reach prepare_at first. Set it below {most_kept:,}."
            ),
            keep=keep,
            most_kept=most_kept,
        )
        found.append(("keep_last_never_folds", ("keep_last_messages", "prepare_at"), sentence))
    if size is not None and size < keep:
        sentence = Phrase(
            gettext_noop(
                "keep_last_messages ({keep:,}) exceeds window_size ({size:,}). Lower it to "
                "{size:,}, or raise window_size."
            ),
            keep=keep,
            size=size,
        )
        found.append(("keep_last_exceeds_window", ("keep_last_messages", "window_size"), sentence))
    if threshold is not None and values.fold_turns > threshold:
        sentence = Phrase(
            gettext_noop(
                "fold_turns ({fold_turns:,}) exceeds turn_threshold ({threshold:,}). Lower it to "
                "{threshold:,} or less."
            ),
            fold_turns=values.fold_turns,
            threshold=threshold,
        )
        found.append(("fold_exceeds_threshold", ("fold_turns", "turn_threshold"), sentence))
    if threshold is not None and size is not None and size < 2 * (threshold + 1):
        sentence = Phrase(
            gettext_noop(
                "window_size ({size:,}) is reached before turn_threshold ({threshold:,} turns of "
                "two messages), so no messages would be summarised. Set window_size to "
                "{at_least:,} or more, or lower turn_threshold."
            ),
            size=size,
            threshold=threshold,
            at_least=2 * (threshold + 1),
        )
        found.append(("window_below_threshold", ("window_size", "turn_threshold"), sentence))
    return found


def _turn_clashes(values: PolicyFields) -> list[Clash]:
    """Check the ceiling in turns against the values that must stay below it."""
    found: list[Clash] = []
    keep, threshold, turns = values.keep_last_messages, values.turn_threshold, values.window_turns
    if turns is None:
        return found
    if keep > 2 * turns:
        sentence = Phrase(
            gettext_noop(
                "keep_last_messages ({keep:,}) exceeds window_turns ({turns:,} turns of two "
                "messages). Lower it to {at_most:,}, or raise window_turns."
            ),
            keep=keep,
            turns=turns,
            at_most=2 * turns,
        )
        found.append(("keep_last_exceeds_window", ("keep_last_messages", "window_turns"), sentence))
    if threshold is not None and turns <= threshold:
        sentence = Phrase(
            gettext_noop(
                "window_turns ({turns:,}) is reached before turn_threshold ({threshold:,}), so no "
                "messages would be summarised. Set window_turns to {at_least:,} or more, or lower "
                "turn_threshold."
            ),
            turns=turns,
            threshold=threshold,
            at_least=threshold + 1,
        )
        found.append(("window_below_threshold", ("window_turns", "turn_threshold"), sentence))
    return found


def _state_clashes(values: PolicyFields) -> list[Clash]:
    if not values.state_schema:
        sentence = Phrase(
            gettext_noop(
                "The strategy entity_state needs a schema. Set state_schema to a JSON Schema of "
                'an object, such as {{"type": "object", "properties": {{"date": '
                '{{"type": "string"}}}}}}.'
            )
        )
        return [("state_schema_missing", ("state_schema",), sentence)]
    try:
        check_schema(values.state_schema)
    except SchemaRefused as error:
        return [
            (error.code, ("state_schema",), Phrase("state_schema: {reason}", reason=error.args[0]))
        ]
    return []
