"""The values of an effective policy, their defaults, and which of them cannot work together."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

CutStyle = Literal["head", "head_tail"]

# How several policies combine: limits take the strictest value, every other field takes the
# nearest.
LIMIT_FIELDS: Mapping[str, Literal["min", "max", "intersection"]] = {
    "window_size": "min",
    "max_chars_per_message": "min",
    "token_budget": "min",
    "reserve_tokens": "max",
    "summary_max_tokens": "min",
    "input_length_limit": "min",
    "tool_output_limit": "min",
    "allowed_models": "intersection",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyValues:
    """Every field of an effective policy.

    Lengths are characters (code points), `*_tokens` and `token_budget` are tokens, marks are
    shares of the prompt limit with an optional absolute value each, of which the lower holds. None
    means no limit, no mark, no trigger. `strategy_config` is JSON-ready and belongs to the
    strategy as a whole.
    """

    strategy: str = "dynamic_summary"
    strategy_config: Mapping[str, object] = field(default_factory=dict)
    window_size: int | None = None
    max_chars_per_message: int | None = None
    cut_style: CutStyle = "head"
    token_budget: int = 16_000
    reserve_tokens: int = 4_000
    keep_last_messages: int = 30
    prepare_at: float = 0.70
    compact_at: float = 0.90
    compact_to: float = 0.45
    prepare_at_tokens: int | None = None
    compact_at_tokens: int | None = None
    compact_to_tokens: int | None = None
    turn_threshold: int | None = None
    fold_turns: int = 5
    summarization_model: str = ""
    summary_max_tokens: int = 2_000
    system_text: str = ""
    hide_system_text: bool = False
    input_length_limit: int = 32_000
    tool_output_limit: int = 8_000
    allowed_models: tuple[str, ...] | None = None
    archive: bool = True

    def to_json(self) -> dict[str, object]:
        """The fields as a JSON-ready object with sorted keys."""
        written = {name: getattr(self, name) for name in sorted(_FIELD_NAMES)}
        written["strategy_config"] = dict(self.strategy_config)
        if self.allowed_models is not None:
            written["allowed_models"] = list(self.allowed_models)
        return written

    def digest(self) -> str:
        """SHA-256, in hex, of the canonical JSON form: equal values have equal digests."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()


class MalformedPolicy(ValueError):
    """A policy in JSON form has a field that does not exist or a value of the wrong kind."""

    code = "malformed_policy"


_FIELD_NAMES = frozenset(item.name for item in fields(PolicyValues))
_OPTIONAL = frozenset(
    {
        "window_size",
        "max_chars_per_message",
        "prepare_at_tokens",
        "compact_at_tokens",
        "compact_to_tokens",
        "turn_threshold",
        "allowed_models",
    }
)

INSTANCE_DEFAULTS: Mapping[str, PolicyValues] = {
    "simple": PolicyValues(strategy="simple", window_size=12, max_chars_per_message=4_000),
    "sliding_window": PolicyValues(strategy="sliding_window"),
    "dynamic_summary": PolicyValues(strategy="dynamic_summary", turn_threshold=10),
}

# "Rounds" folds by turns, "Long chats" by token marks only; the latter is the default of a new
# instance.
PRESETS: Mapping[str, PolicyValues] = {
    "rounds": INSTANCE_DEFAULTS["dynamic_summary"],
    "long_chats": PolicyValues(strategy="dynamic_summary"),
}


def defaults_for(strategy: str) -> PolicyValues:
    """The defaults of a strategy; one without its own gets the plain ones under its name."""
    if strategy in INSTANCE_DEFAULTS:
        return INSTANCE_DEFAULTS[strategy]
    return PolicyValues(strategy=strategy)


def from_json(data: Mapping[str, object], *, base: PolicyValues | None = None) -> PolicyValues:
    """Read values from JSON; an absent field keeps its value in `base`, or its default.

    Raises MalformedPolicy for an unknown field and for a value of the wrong kind.
    """
    unknown = sorted(set(data) - _FIELD_NAMES)
    if unknown:
        raise MalformedPolicy(
            f"A policy has no field {unknown[0]!r}. Remove it or correct its name."
        )
    values: dict[str, object] = {}
    if base is not None:
        values = {name: getattr(base, name) for name in _FIELD_NAMES}
    values.update({name: _checked(name, value) for name, value in data.items()})
    return PolicyValues(**values)  # type: ignore[arg-type]  # each value was checked against its field


def _checked(name: str, value: object) -> object:
    if value is None and name in _OPTIONAL:
        return None
    if name == "allowed_models":
        return _model_names(value)
    if not _KINDS[name](value):
        raise MalformedPolicy(f"The policy field {name} cannot be {value!r}. Give {_WANTED[name]}.")
    return float(value) if isinstance(value, int) and name in _SHARES else value


def _model_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise MalformedPolicy("The policy field allowed_models must be a list of model names.")
    return tuple(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_SHARES = frozenset({"prepare_at", "compact_at", "compact_to"})
_BY_EXAMPLE: Mapping[type, tuple[Callable[[object], bool], str]] = {
    bool: (lambda value: isinstance(value, bool), "true or false"),
    int: (_is_integer, "a whole number"),
    float: (lambda value: _is_integer(value) or isinstance(value, float), "a number"),
    str: (lambda value: isinstance(value, str), "a text"),
    dict: (lambda value: isinstance(value, Mapping), "an object"),
    # The fields without a default value are optional numbers.
    type(None): (_is_integer, "a whole number or null"),
}
_EXAMPLES: Mapping[str, object] = {
    name: getattr(PolicyValues(), name) for name in sorted(_FIELD_NAMES)
}
_KINDS = {name: _BY_EXAMPLE[type(example)][0] for name, example in _EXAMPLES.items()}
_KINDS["cut_style"] = lambda value: value in ("head", "head_tail")
_WANTED = {name: _BY_EXAMPLE[type(example)][1] for name, example in _EXAMPLES.items()}
_WANTED["cut_style"] = '"head" or "head_tail"'


@dataclass(frozen=True, slots=True)
class Problem:
    """Why values cannot work: a stable code, the fields, and a sentence with what would fit."""

    code: str
    fields: tuple[str, ...]
    sentence: str


# What a question and its nearest history need to be of any use.
SMALLEST_ROOM = 1_000
# A stored message is never smaller: the frame and one token of text.
SMALLEST_MESSAGE = 5
LARGEST_NUMBER = 100_000_000


def mark(share: float, absolute: int | None, *, prompt_limit: int) -> int:
    """A mark in tokens: the share of the prompt limit or the absolute value, the lower."""
    by_share = int(share * prompt_limit)
    return by_share if absolute is None else min(by_share, absolute)


def estimated_tokens(text: str) -> int:
    """A third of the UTF-8 bytes: for checks at save time, where no counter is at hand."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


def problems(
    values: PolicyValues,
    *,
    model_window: int | None,
    count: Callable[[str], int] = estimated_tokens,
) -> list[Problem]:
    """Say what cannot work with a model of `model_window` tokens (None: unknown).

    `count` counts the tokens of the system text. An empty list means the values can be saved.
    """
    found = _number_problems(values)
    if found:
        return found
    ceiling = (
        values.token_budget if model_window is None else min(values.token_budget, model_window)
    )
    limit = ceiling - values.reserve_tokens
    if limit < 1:
        return [_no_room_for_a_prompt(values, model_window)]
    found = _system_problems(values, limit, count(values.system_text))
    if values.strategy != "simple":
        found += _mark_problems(values, limit)
    if values.strategy == "dynamic_summary":
        found += _summary_problems(values, limit, count(values.system_text))
        found += _folding_problems(values, limit)
    return found


_MAY_BE_ZERO = frozenset({"keep_last_messages"})


def _number_problems(values: PolicyValues) -> list[Problem]:
    found = []
    for name in sorted(_FIELD_NAMES - _SHARES):
        number = getattr(values, name)
        if not _is_integer(number):
            continue
        smallest = 0 if name in _MAY_BE_ZERO else 1
        if not smallest <= number <= LARGEST_NUMBER:
            sentence = (
                f"{name} is {number:,}. Give a whole number from {smallest} to {LARGEST_NUMBER:,}."
            )
            found.append(Problem("number_out_of_range", (name,), sentence))
    return found


def _no_room_for_a_prompt(values: PolicyValues, model_window: int | None) -> Problem:
    if values.reserve_tokens >= values.token_budget:
        sentence = (
            f"reserve_tokens ({values.reserve_tokens:,}) takes the whole token_budget "
            f"({values.token_budget:,}). Keep the reserve below the budget."
        )
        return Problem("reserve_exceeds_budget", ("reserve_tokens", "token_budget"), sentence)
    sentence = (
        f"reserve_tokens ({values.reserve_tokens:,}) takes the whole context window of the model "
        f"({model_window:,}). Keep it below {model_window:,} or choose a larger model."
    )
    return Problem("reserve_exceeds_window", ("reserve_tokens",), sentence)


def _system_problems(values: PolicyValues, limit: int, system_tokens: int) -> list[Problem]:
    if limit - system_tokens >= SMALLEST_ROOM:
        return []
    if system_tokens == 0:
        sentence = (
            f"The prompt limit (token_budget less reserve_tokens) is {limit:,} tokens. It must be "
            f"at least {SMALLEST_ROOM:,}."
        )
        return [Problem("prompt_limit_too_small", ("token_budget", "reserve_tokens"), sentence)]
    sentence = (
        f"system_text takes about {system_tokens:,} of {limit:,} prompt tokens and leaves less "
        f"than {SMALLEST_ROOM:,} for the chat. Shorten it to {max(0, limit - SMALLEST_ROOM):,} "
        "tokens or raise token_budget."
    )
    return [Problem("system_text_too_long", ("system_text", "token_budget"), sentence)]


def _mark_problems(values: PolicyValues, limit: int) -> list[Problem]:
    """A sliding window may have equal marks: then it fills the room exactly each turn."""
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
    sentence = (
        f"The marks are out of order: compact_to is {low:,}, prepare_at {prepare:,}, compact_at "
        f"{high:,} of {limit:,} prompt tokens. The order must be {order}."
    )
    names = [
        f"{name}{suffix}"
        for name in ("compact_to", "prepare_at", "compact_at")
        for suffix in ("", "_tokens")
    ]
    return [Problem("marks_out_of_order", tuple(names), sentence)]


def _marks(values: PolicyValues, limit: int) -> tuple[int, int, int]:
    return (
        mark(values.compact_to, values.compact_to_tokens, prompt_limit=limit),
        mark(values.prepare_at, values.prepare_at_tokens, prompt_limit=limit),
        mark(values.compact_at, values.compact_at_tokens, prompt_limit=limit),
    )


def _summary_problems(values: PolicyValues, limit: int, system_tokens: int) -> list[Problem]:
    """A summary that alone reaches the low mark would be followed by the next one at every turn."""
    names = ("summary_max_tokens", "compact_to", "token_budget")
    if limit < values.summary_max_tokens + SMALLEST_ROOM:
        sentence = (
            f"summary_max_tokens ({values.summary_max_tokens:,}) leaves less than "
            f"{SMALLEST_ROOM:,} of {limit:,} prompt tokens. Lower it to "
            f"{max(0, limit - SMALLEST_ROOM):,} or raise token_budget."
        )
        return [Problem("summary_too_large", names, sentence)]
    low = _marks(values, limit)[0]
    if values.summary_max_tokens + system_tokens < low:
        return []
    sentence = (
        f"system_text (about {system_tokens:,} tokens) and a summary of "
        f"{values.summary_max_tokens:,} reach compact_to ({low:,} tokens): each turn would "
        f"compact again. Lower summary_max_tokens below {max(0, low - system_tokens):,}, or raise "
        "compact_to or token_budget."
    )
    return [Problem("summary_reaches_low_mark", (*names, "system_text"), sentence)]


def _folding_problems(values: PolicyValues, limit: int) -> list[Problem]:
    found = []
    keep, threshold, size = values.keep_last_messages, values.turn_threshold, values.window_size
    most_kept = _marks(values, limit)[1] // SMALLEST_MESSAGE
    if keep >= most_kept:
        sentence = (
            f"keep_last_messages ({keep:,}) lets nothing fold: even the shortest messages reach "
            f"prepare_at first. Keep fewer than {most_kept:,}."
        )
        found.append(
            Problem("keep_last_never_folds", ("keep_last_messages", "prepare_at"), sentence)
        )
    if size is not None and size < keep:
        sentence = (
            f"keep_last_messages ({keep:,}) is more than window_size ({size:,}) lets in. Keep at "
            f"most {size:,} or widen the window."
        )
        found.append(
            Problem("keep_last_exceeds_window", ("keep_last_messages", "window_size"), sentence)
        )
    if threshold is not None and values.fold_turns > threshold:
        sentence = (
            f"fold_turns ({values.fold_turns:,}) is more than turn_threshold ({threshold:,}): too "
            f"few turns would stay. Fold at most {threshold:,}."
        )
        found.append(Problem("fold_exceeds_threshold", ("fold_turns", "turn_threshold"), sentence))
    if threshold is not None and size is not None and size < 2 * (threshold + 1):
        sentence = (
            f"window_size ({size:,}) is reached before turn_threshold ({threshold:,} turns, two "
            f"messages each): nothing would be folded. Set window_size to {2 * (threshold + 1):,} "
            "or more, or lower turn_threshold."
        )
        found.append(Problem("window_below_threshold", ("window_size", "turn_threshold"), sentence))
    return found
