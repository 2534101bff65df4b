"""Finds policy values that cannot work together. Each gets a sentence with possible values."""

from dataclasses import fields

from contextpolicy.engine.policy.fields import PolicyFields, compute_mark_tokens
from contextpolicy.engine.text.phrases import Phrase, gettext_noop
from contextpolicy.engine.text.schema import SchemaRefused, check_schema

# A stable code, the fields, and a sentence.
Clash = tuple[str, tuple[str, ...], str]

# The minimum tokens for a question and its nearest history.
SMALLEST_ROOM = 1_000
# The minimum bytes for a question.
SMALLEST_BYTES = 1_000
# The minimum tokens of a stored message: the overhead and one token of text.
SMALLEST_MESSAGE = 5
LARGEST_NUMBER = 100_000_000
LONGEST_PREFIX = 200
# The maximum number of headings in a summary, and the maximum characters of one.
MOST_SECTIONS, LONGEST_SECTION = 10, 60
# The maximum number of retrieved chunks with one question.
MOST_REFERENCES = 300
# The maximum share of the prompt limit for excerpts of the chat itself.
LARGEST_SHARE = 0.9
# A hundred years.
MOST_DAYS = 36_500


def estimate_tokens(text: str) -> int:
    """Estimate tokens as a third of the UTF-8 bytes. Validation has no tokenizer."""
    return -(-_bytes(text) // 3)


def find_number_clashes(values: PolicyFields) -> list[Clash]:
    """List the numbers that are out of range. The other checks assume that there are none."""
    found: list[Clash] = []
    for name, number in _numbers(values):
        smallest = 0 if name in _MAY_BE_ZERO or name.endswith("keep_newest") else 1
        if not smallest <= number <= LARGEST_NUMBER:
            sentence = Phrase(
                gettext_noop(
                    "{name} is {number:,}. Enter a whole number from {smallest} to {largest:,}."
                ),
                name=name,
                number=number,
                smallest=smallest,
                largest=LARGEST_NUMBER,
            )
            found.append(("number_out_of_range", (name.partition(".")[0],), sentence))
    return found


def find_reserve_clashes(values: PolicyFields, *, model_window: int | None) -> list[Clash]:
    """Find a reserve that leaves no room for a prompt."""
    if values.reserve_tokens >= values.token_budget:
        sentence = Phrase(
            gettext_noop(
                "reserve_tokens ({reserve_tokens:,}) uses the whole token_budget "
                "({token_budget:,}). Lower reserve_tokens below token_budget."
            ),
            reserve_tokens=values.reserve_tokens,
            token_budget=values.token_budget,
        )
        return [("reserve_exceeds_budget", ("reserve_tokens", "token_budget"), sentence)]
    if model_window is None or values.reserve_tokens < model_window:
        return []
    sentence = Phrase(
        gettext_noop(
            "reserve_tokens ({reserve_tokens:,}) uses the whole context window of the model "
            "({model_window:,}). Lower it below {model_window:,}, or choose a larger model."
        ),
        reserve_tokens=values.reserve_tokens,
        model_window=model_window,
    )
    return [("reserve_exceeds_window", ("reserve_tokens",), sentence)]


def find_limit_clashes(values: PolicyFields, *, limit: int, system_tokens: int) -> list[Clash]:
    """List the problems within a prompt limit of `limit` tokens, at least 1."""
    found = _system_clashes(values, limit, system_tokens) + _small_rooms(values, limit)
    found += _heading_clashes(values)
    if values.strategy != "simple":
        found += _mark_clashes(values, limit)
    if values.strategy == "dynamic_summary":
        found += _summary_clashes(values, limit, system_tokens)
        found += _folding_clashes(values, limit)
        found += _turn_clashes(values)
    if values.strategy == "entity_state":
        found += _state_clashes(values)
    return found


_MAY_BE_ZERO = frozenset({"keep_last_messages"})


def _numbers(values: PolicyFields) -> list[tuple[str, int]]:
    named = {item.name: getattr(values, item.name) for item in fields(values)}
    for tool, rule in values.tool_output_rules.items():
        named.update({f"tool_output_rules.{tool}.{name}": rule[name] for name in rule})
    return [
        (name, number)
        for name, number in sorted(named.items())
        if isinstance(number, int) and not isinstance(number, bool)
    ]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _references(values: PolicyFields, limit: int) -> list[Clash]:
    found: list[Clash] = []
    if not 0 <= values.reference_share <= LARGEST_SHARE:
        sentence = Phrase(
            gettext_noop("reference_share must be a number between 0 and {largest}."),
            largest=LARGEST_SHARE,
        )
        found.append(("reference_share_out_of_range", ("reference_share",), sentence))
    is_absolute = values.references and not values.reference_share
    if is_absolute and values.reference_tokens > limit - SMALLEST_ROOM:
        sentence = Phrase(
            gettext_noop(
                "reference_tokens ({reference_tokens:,}) leaves less than {smallest:,} of "
                "{limit:,} prompt tokens. Lower it to {at_most:,} or raise token_budget."
            ),
            reference_tokens=values.reference_tokens,
            smallest=SMALLEST_ROOM,
            limit=limit,
            at_most=max(1, limit - SMALLEST_ROOM),
        )
        found.append(("references_too_large", ("reference_tokens", "token_budget"), sentence))
    if values.reference_count > MOST_REFERENCES:
        sentence = Phrase(
            gettext_noop("reference_count is {reference_count:,}. Set it to {most} or less."),
            reference_count=values.reference_count,
            most=MOST_REFERENCES,
        )
        found.append(("too_many_references", ("reference_count",), sentence))
    return found


def _small_rooms(values: PolicyFields, limit: int) -> list[Clash]:
    found: list[Clash] = []
    system = _bytes(values.system_text)
    if values.max_bytes is not None and values.max_bytes - system < SMALLEST_BYTES:
        sentence = Phrase(
            gettext_noop(
                "system_text uses {system:,} of the {max_bytes:,} bytes in max_bytes. Set "
                "max_bytes to {at_least:,} or more."
            ),
            max_bytes=values.max_bytes,
            system=system,
            at_least=system + SMALLEST_BYTES,
        )
        found.append(("max_bytes_too_small", ("max_bytes", "system_text"), sentence))
    if values.window_tokens is not None and values.window_tokens < SMALLEST_ROOM:
        sentence = Phrase(
            gettext_noop(
                "window_tokens ({window_tokens:,}) leaves too little room for the history. Set it "
                "to {smallest:,} or more."
            ),
            window_tokens=values.window_tokens,
            smallest=SMALLEST_ROOM,
        )
        found.append(("window_too_small", ("window_tokens",), sentence))
    if values.pins_tokens is not None and values.pins_tokens > limit - SMALLEST_ROOM:
        sentence = Phrase(
            gettext_noop(
                "pins_tokens ({pins_tokens:,}) leaves less than {smallest:,} of {limit:,} "
                "prompt tokens. Lower it to {at_most:,} or raise token_budget."
            ),
            pins_tokens=values.pins_tokens,
            smallest=SMALLEST_ROOM,
            limit=limit,
            at_most=max(1, limit - SMALLEST_ROOM),
        )
        found.append(("pins_too_large", ("pins_tokens", "token_budget"), sentence))
    found += _references(values, limit)
    if values.retention_days is not None and values.retention_days > MOST_DAYS:
        sentence = Phrase(
            gettext_noop("retention_days is {retention_days:,}. Set it to {most:,} or less."),
            retention_days=values.retention_days,
            most=MOST_DAYS,
        )
        found.append(("retention_too_long", ("retention_days",), sentence))
    if len(values.question_prefix) > LONGEST_PREFIX:
        sentence = Phrase(
            gettext_noop("question_prefix is longer than {longest} characters. Shorten it."),
            longest=LONGEST_PREFIX,
        )
        found.append(("question_prefix_too_long", ("question_prefix",), sentence))
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


def _system_clashes(values: PolicyFields, limit: int, system_tokens: int) -> list[Clash]:
    if limit - system_tokens >= SMALLEST_ROOM:
        return []
    if system_tokens == 0:
        sentence = Phrase(
            gettext_noop(
                "The prompt limit (token_budget less reserve_tokens) is {limit:,} tokens. It "
                "must be at least {smallest:,}."
            ),
            limit=limit,
            smallest=SMALLEST_ROOM,
        )
        return [("prompt_limit_too_small", ("token_budget", "reserve_tokens"), sentence)]
    sentence = Phrase(
        gettext_noop(
            "system_text takes about {system_tokens:,} of {limit:,} prompt tokens and "
            "leaves less than {smallest:,} for the chat. Shorten it to {at_most:,} tokens "
            "or raise token_budget."
        ),
        system_tokens=system_tokens,
        limit=limit,
        smallest=SMALLEST_ROOM,
        at_most=max(0, limit - SMALLEST_ROOM),
    )
    return [("system_text_too_long", ("system_text", "token_budget"), sentence)]


def _heading_clashes(values: PolicyFields) -> list[Clash]:
    """Check that each heading of a summary is a single line and that headings differ."""
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
                    "The heading “{name}” in summary_sections is not valid. Write words on one "
                    "line, without number signs or a colon around them."
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

    The marks of a sliding window may be equal: then it fills the room exactly at each turn.
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
    """Check that a summary leaves room below the low mark.

    A summary that alone reaches that mark would trigger the next one at every turn.
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
            "system_text (about {system_tokens:,} tokens) and a summary of {summary_max_tokens:,} "
            "tokens reach compact_to ({low:,} tokens), so each turn would start a compaction. "
            "Lower summary_max_tokens below {at_most:,}, or raise compact_to or token_budget."
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
