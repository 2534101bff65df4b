"""Describes a policy in plain words, in which each figure knows the field that decides it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contextpolicy.admin.words import APPROVALS, KIND_NAMES, REFERENCE_SCOPES, UNMANAGED
from contextpolicy.engine.budget import compact_mark, low_mark, prepare_mark, prompt_limit
from contextpolicy.engine.policy import PolicyValues


@dataclass(frozen=True, slots=True)
class Figure:
    """A value as it reads in a sentence, and the field that decides it.

    `of` tells which figure it is, so that those of two versions can be compared.
    """

    text: str
    field: str
    of: str


Pieces = Sequence[str | Figure]


def plain_words(values: PolicyValues) -> str:
    """Describe what these values do, in a few sentences with their numbers."""
    return "".join(each.text if isinstance(each, Figure) else each for each in told(values))


def told(values: PolicyValues) -> list[str | Figure]:
    """Describe what these values do: the words, and the figures among them."""
    limit = prompt_limit(values, model_window=None)
    describe = {
        "simple": _simple,
        "sliding_window": _sliding,
        "dynamic_summary": _summary,
        "entity_state": _state,
    }
    sentences = [
        _said(
            "Sends at most {} tokens and keeps {} free for the reply.",
            _number("token_budget", limit),
            _number("reserve_tokens", values.reserve_tokens),
        ),
        *describe.get(values.strategy, _other)(values, limit),
        *_ceilings(values),
        *_cuts(values),
        *_layout(values),
        *_rights(values),
        *_servers(values),
        *_memory(values),
    ]
    pieces: list[str | Figure] = []
    for sentence in sentences:
        pieces += [" ", *sentence] if pieces else sentence
    return pieces


def _said(words: str, *figures: Figure) -> Pieces:
    """Put a figure in the place of each `{}`; what people wrote is always a figure."""
    first, *rest = words.split("{}")
    pieces: list[str | Figure] = [first]
    for figure, more in zip(figures, rest, strict=True):
        pieces += [figure, more]
    return pieces


def _number(field: str, number: int, *, of: str = "") -> Figure:
    return Figure(f"{number:,}", field, of or field)


def _words(field: str, words: str) -> Figure:
    return Figure(words, field, field)


def _mark(values: PolicyValues, name: str, tokens: int) -> Figure:
    """Return the figure of a mark; it belongs to the share or to the tokens, whichever decides."""
    in_tokens = f"{name}_tokens"
    is_absolute = getattr(values, in_tokens) == tokens
    return _number(in_tokens if is_absolute else name, tokens, of=name)


def _simple(values: PolicyValues, _limit: int) -> list[Pieces]:
    if values.window_size is None:
        return [["Of the history, as many of the newest messages go along as fit."]]
    newest = _number("window_size", values.window_size)
    return [_said("Of the history, the newest {} messages go along.", newest)]


def _sliding(values: PolicyValues, limit: int) -> list[Pieces]:
    high = _mark(values, "compact_at", compact_mark(values, prompt_limit=limit))
    first = _said("At {} tokens the oldest history stays behind, ", high)
    return [[*first, *_down_to(values, limit), "."]]


def _summary(values: PolicyValues, limit: int) -> list[Pieces]:
    prepare = _mark(values, "prepare_at", prepare_mark(values, prompt_limit=limit))
    high = _mark(values, "compact_at", compact_mark(values, prompt_limit=limit))
    writer = _words("summarization_model", values.summarization_model or "the built-in extractor")
    turns: Pieces = []
    if values.turn_threshold is not None:
        turns = _said(
            ", or after more than {} turns,", _number("turn_threshold", values.turn_threshold)
        )
    sentences: list[Pieces] = [
        [
            *_said("From {} tokens on", prepare),
            *turns,
            *_said(
                " {} prepares a summary of at most {} tokens for older messages.",
                writer,
                _number("summary_max_tokens", values.summary_max_tokens),
            ),
        ],
        [
            *_said("At {} tokens it takes their place, ", high),
            *_down_to(values, limit),
            *_said(
                "; the newest {} messages stay in full where they fit.",
                _number("keep_last_messages", values.keep_last_messages),
            ),
        ],
    ]
    if values.pinned_kinds:
        names = (KIND_NAMES[kind] for kind in values.pinned_kinds)
        kinds = ", ".join(f"{name[0].lower()}{name[1:]}" for name in names)
        sentences.append(
            _said(
                "A summary that loses any of these is rejected: {}.", _words("pinned_kinds", kinds)
            )
        )
    if values.summary_instruction.strip() and values.summarization_model:
        instruction = _words("summary_instruction", "an instruction of its own")
        sentences.append(_said("{} follows {}.", writer, instruction))
    if values.summary_sections:
        headings = _words("summary_sections", ", ".join(values.summary_sections))
        sentences.append(_said("A summary has the headings {}.", headings))
    if values.approval != "nobody":
        who = _words("approval", APPROVALS[values.approval])
        sentences.append(_said("{} approves each summary before it is used.", who))
    return sentences


def _state(values: PolicyValues, _limit: int) -> list[Pieces]:
    properties = values.state_schema.get("properties")
    names = ", ".join(properties) if isinstance(properties, dict) else ""
    kept = _said(" ({})", _words("state_schema", names)) if names else []
    newest: Pieces = ["No past dialogue goes along"]
    if values.keep_last_messages:
        count = _number("keep_last_messages", values.keep_last_messages)
        newest = _said("The newest {} messages go along", count)
    return [[*newest, "; a state", *kept, " stands for the rest."]]


def _other(values: PolicyValues, _limit: int) -> list[Pieces]:
    strategy = _words("strategy", values.strategy)
    return [_said("The strategy {} chooses what history goes along.", strategy)]


def _down_to(values: PolicyValues, limit: int) -> Pieces:
    if values.compact_every_turns is not None:
        every = _number("compact_every_turns", values.compact_every_turns)
        return _said("so far that the next time comes in about {} turns", every)
    low = _mark(values, "compact_to", low_mark(values, prompt_limit=limit))
    return _said("down to {} tokens", low)


def _ceilings(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    ceilings = [
        _said(f"{{}} {unit}", _number(name, number))
        for name, number, unit in (
            (
                "window_size",
                values.window_size if values.strategy != "simple" else None,
                "messages",
            ),
            ("window_turns", values.window_turns, "turns"),
            ("window_tokens", values.window_tokens, "tokens"),
        )
        if number is not None
    ]
    if ceilings:
        joined = _joined(ceilings, " or ")
        sentences.append(["Never more than ", *joined, " of the history go along."])
    if values.max_bytes is not None:
        sentences.append(
            _said("A prompt has at most {} bytes.", _number("max_bytes", values.max_bytes))
        )
    if values.pins_tokens is not None:
        room = _number("pins_tokens", values.pins_tokens)
        sentences.append(_said("Pins may take {} tokens.", room))
    return sentences


def _joined(parts: Sequence[Pieces], between: str) -> Iterator[str | Figure]:
    for place, part in enumerate(parts):
        yield from [between, *part] if place else part


def _cuts(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if values.max_chars_per_message is not None:
        sentences.append(
            _said(
                "Each message of the history is cut to {} characters.",
                _number("max_chars_per_message", values.max_chars_per_message),
            )
        )
    for tool, rule in values.tool_output_rules.items():
        whose = "other tools" if tool == "*" else tool
        name = Figure(whose, "tool_output_rules", f"rule of {tool}")
        said = [
            _said(words, _number("tool_output_rules", rule[key], of=f"{key} of {tool}"))
            for key, words in (
                ("limit", "are cut to {} characters"),
                ("keep_newest", "are left out but for the newest {}"),
            )
            if key in rule
        ]
        if said:
            sentences.append([*_said("Results of {} ", name), *_joined(said, " and "), "."])
    return sentences


def _layout(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if values.layout != "multi_turn":
        layout = _words("layout", values.layout)
        sentences.append(_said("The history goes along as text (layout {}).", layout))
    if values.show_date:
        sentences.append(_said("{} stands before the question.", _words("show_date", "The day")))
    if values.history_provider:
        provider = _words("history_provider", values.history_provider)
        sentences.append(_said("The history provider {} chooses the earlier messages.", provider))
    if values.plain_sections:
        plain = _words("plain_sections", "plain text")
        sentences.append(_said("Preferences and retrieved context are sent as {}.", plain))
    if values.dates and values.layout == "multi_turn":
        sentences.append(_said("{} precedes the messages of each day.", _words("dates", "A date")))
    if values.references and values.reference_share:
        share = Figure(f"{values.reference_share:.0%}", "reference_share", "reference_share")
        sentences.append(
            _said(
                "Each question brings back up to {} excerpts of earlier messages of the chat that "
                "the prompt leaves out, in up to {} of the prompt limit.",
                _number("reference_count", values.reference_count),
                share,
            )
        )
    elif values.references:
        sentences.append(
            _said(
                "At most {} passages of earlier messages ({} tokens) go along with a question that "
                "shares words with them, taken from: {}.",
                _number("reference_count", values.reference_count),
                _number("reference_tokens", values.reference_tokens),
                _words("reference_scope", REFERENCE_SCOPES[values.reference_scope].lower()),
            )
        )
    return sentences


def _rights(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = [
        _said(
            "New messages over {} characters are refused.",
            _number("input_length_limit", values.input_length_limit),
        )
    ]
    if values.allowed_models is not None:
        models = _words("allowed_models", ", ".join(values.allowed_models) or "none")
        sentences.append(_said("Allowed models: {}.", models))
    if not values.temporary_chats:
        temporary = _words("temporary_chats", "temporary chats")
        sentences.append(_said("People cannot begin {}.", temporary))
    if values.retention_days is not None:
        days = "1 day" if values.retention_days == 1 else f"{values.retention_days:,} days"
        sentences.append(
            _said(
                "Messages are erased after {}, unless a legal hold covers them.",
                _words("retention_days", days),
            )
        )
    if values.chat_system == "ignore":
        own = _words("chat_system", "no system text of its own")
        sentences.append(_said("A chat has {}.", own))
    if values.system_text and values.hide_system_text:
        hidden = _words("hide_system_text", "hidden")
        sentences.append(_said("The system text is {} from the people who chat.", hidden))
    return sentences


def _servers(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if not values.warm_up:
        sentences.append(_said("{} is read ahead.", _words("warm_up", "No prompt")))
    if values.unmanaged != "keys":
        which = _words("unmanaged", UNMANAGED[values.unmanaged].lower())
        sentences.append(_said("Requests of programs that are passed on as they came: {}.", which))
    if not values.cache_marks:
        kept = _words("cache_marks", "no prompt")
        sentences.append(_said("Servers with Anthropic’s interface keep {} in their cache.", kept))
    return sentences


def _memory(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if not values.own_instructions:
        left_out = _words("own_instructions", "does not go along")
        sentences.append(_said("What a person wrote for all of their chats {}.", left_out))
    if not values.preferences:
        sentences.append(_said("{} are noted or sent.", _words("preferences", "No preferences")))
    elif not values.inferred_preferences:
        nobody = _words("inferred_preferences", "No model")
        sentences.append(_said("{} proposes preferences.", nobody))
    if values.recent_by_user is not None:
        sentences.append(
            _said(
                "The newest {} messages of a person's other chats go along.",
                _number("recent_by_user", values.recent_by_user),
            )
        )
    if values.memory_providers is not None:
        names = _words("memory_providers", ", ".join(values.memory_providers) or "no provider")
        sentences.append(_said("What is known of a person goes to {} alone.", names))
    if values.skills:
        skills = _words("skills", ", ".join(values.skills))
        sentences.append(_said("Skills in the system text: {}.", skills))
    return sentences
