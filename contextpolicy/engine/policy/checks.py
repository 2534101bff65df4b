"""Finds policy values that cannot work together. Each problem is a sentence with possible values.

The checks of one strategy are in `strategy_checks`.
"""

from contextpolicy.engine.policy.fields import FIELDS, PolicyFields
from contextpolicy.engine.policy.fields.declaration import LARGEST_NUMBER
from contextpolicy.engine.text.phrases import Phrase, gettext_noop

# A stable code, the fields, and a sentence.
Clash = tuple[str, tuple[str, ...], str]

# The minimum tokens for a question and its nearest history.
SMALLEST_ROOM = 1_000
# The minimum bytes for a question.
SMALLEST_BYTES = 1_000
OUT_OF_RANGE = "number_out_of_range"


def estimate_tokens(text: str) -> int:
    """Estimate tokens as a third of the UTF-8 bytes. Validation has no tokenizer."""
    return -(-_bytes(text) // 3)


def find_number_clashes(values: PolicyFields) -> list[Clash]:
    """Return the numbers that are out of range. The other checks assume that there are none."""
    found: list[Clash] = []
    for name, number in _numbers(values):
        declared = FIELDS.get(name)
        smallest = declared.smallest if declared else int(not name.endswith("keep_newest"))
        largest: float = LARGEST_NUMBER
        if declared and declared.too_large == OUT_OF_RANGE:
            largest = declared.largest
        if not smallest <= number <= largest:
            sentence = Phrase(
                gettext_noop(
                    "{name} is {number:,}. Enter a whole number from {smallest} to {largest:,}."
                ),
                name=name,
                number=number,
                smallest=smallest,
                largest=largest,
            )
            found.append((OUT_OF_RANGE, (name.partition(".")[0],), sentence))
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
            "reserve_tokens ({reserve_tokens:,}) uses the model’s whole context window "
            "({model_window:,}). Lower reserve_tokens below {model_window:,}, or choose a model "
            "with a larger context window."
        ),
        reserve_tokens=values.reserve_tokens,
        model_window=model_window,
    )
    return [("reserve_exceeds_window", ("reserve_tokens",), sentence)]


def find_limit_clashes(values: PolicyFields, *, limit: int, system_tokens: int) -> list[Clash]:
    """Return the values that leave too little room in a prompt, or exceed a bound of their field.

    `limit`: the prompt limit in tokens, at least 1.
    """
    return _system_clashes(values, limit, system_tokens) + _small_rooms(values, limit)


def _numbers(values: PolicyFields) -> list[tuple[str, int]]:
    named = {
        name: getattr(values, name)
        for name, declared in FIELDS.items()
        if declared.kind == "integer"
    }
    for tool, rule in values.tool_output_rules.items():
        named.update({f"tool_output_rules.{tool}.{name}": rule[name] for name in rule})
    return [(name, number) for name, number in sorted(named.items()) if number is not None]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _references(values: PolicyFields, limit: int) -> list[Clash]:
    found: list[Clash] = []
    largest = FIELDS["reference_share"].largest
    if not 0 <= values.reference_share <= largest:
        sentence = Phrase(
            gettext_noop("reference_share must be a number between 0 and {largest}."),
            largest=largest,
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
    return found


def _too_large(values: PolicyFields) -> list[Clash]:
    """Find the numbers above a bound that has its own code."""
    found: list[Clash] = []
    for name, number in _numbers(values):
        declared = FIELDS.get(name)
        if declared and declared.too_large != OUT_OF_RANGE and number > declared.largest:
            sentence = Phrase(
                gettext_noop("{name} is {number:,}. Set it to {most:,} or less."),
                name=name,
                number=number,
                most=declared.largest,
            )
            found.append((declared.too_large, (name,), sentence))
    return found


def _small_rooms(values: PolicyFields, limit: int) -> list[Clash]:
    found: list[Clash] = []
    system = _bytes(values.system_text)
    if values.max_bytes is not None and values.max_bytes - system < SMALLEST_BYTES:
        sentence = Phrase(
            gettext_noop(
                "system_text uses {system:,} of the {max_bytes:,} bytes that max_bytes allows. "
                "Set max_bytes to {at_least:,} or more."
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
    found += _references(values, limit) + _too_large(values)
    longest = FIELDS["question_prefix"].longest
    if longest is not None and len(values.question_prefix) > longest:
        sentence = Phrase(
            gettext_noop("question_prefix is longer than {longest} characters. Shorten it."),
            longest=longest,
        )
        found.append(("question_prefix_too_long", ("question_prefix",), sentence))
    return found


def _system_clashes(values: PolicyFields, limit: int, system_tokens: int) -> list[Clash]:
    if limit - system_tokens >= SMALLEST_ROOM:
        return []
    if system_tokens == 0:
        sentence = Phrase(
            gettext_noop(
                "The prompt limit (token_budget minus reserve_tokens) is {limit:,} tokens. It "
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
