"""Describes a policy in sentences. Each figure knows the field that sets it.

A sentence is one message for translators. `{names}` stand for figures, or for amounts with their
unit; words in [brackets] become the figure of the field that the sentence is about.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

from chats.admin.policies.labels import APPROVALS, KIND_NAMES, REFERENCE_SCOPES, UNMANAGED
from chats.models import StoredFile
from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_low_mark,
    compute_prepare_mark,
    compute_prompt_limit,
)
from contextpolicy.engine.policy.policy import PolicyValues


@dataclass(frozen=True, slots=True)
class Figure:
    """A value in a sentence, and the field that sets it.

    `of` identifies the figure, so that the figures of two versions can be compared.
    """

    text: str
    field: str
    of: str


Pieces = Sequence[str | Figure]
_PLACES = re.compile(r"\{(\w+)\}|\[([^\[\]]+)\]")


def describe_policy(values: PolicyValues) -> str:
    """Describe these values in a few sentences with their numbers."""
    return "".join(
        each.text if isinstance(each, Figure) else each for each in build_description_parts(values)
    )


def build_description_parts(values: PolicyValues) -> list[str | Figure]:
    limit = compute_prompt_limit(values, model_window=None)
    describe = {
        "simple": _simple,
        "sliding_window": _sliding,
        "dynamic_summary": _summary,
        "entity_state": _state,
    }
    sentences = [
        _said(
            ngettext(
                "Sends at most {n} token and keeps {reserve} free for the reply.",
                "Sends at most {n} tokens and keeps {reserve} free for the reply.",
                limit,
            ),
            n=_number("token_budget", limit),
            reserve=_number("reserve_tokens", values.reserve_tokens),
        ),
        *describe.get(values.strategy, _other)(values, limit),
        *_ceilings(values),
        *_cuts(values),
        *_layout(values),
        *_rights(values),
        *_servers(values),
        *_memory(values),
    ]
    pieces = sentences[0]
    for sentence in sentences[1:]:
        # Some languages have no space between sentences.
        following = pgettext("two sentences", "{first} {second}")
        pieces = _said(following, first=pieces, second=sentence)
    return list(pieces)


def _said(words: str, *, about: str = "", **figures: Figure | Pieces) -> Pieces:
    """Replace each `{name}` with its figure, and words in brackets with a figure of the field
    `about`.

    A user's own text is always a figure.
    """
    pieces: list[str | Figure] = []
    end = 0
    for place in _PLACES.finditer(words):
        pieces.append(words[end : place.start()])
        figure = figures[place[1]] if place[1] else _words(about, place[2])
        pieces += [figure] if isinstance(figure, Figure) else figure
        end = place.end()
    return [*pieces, words[end:]]


def _number(field: str, number: int, *, of: str = "") -> Figure:
    return Figure(f"{number:,}", field, of or field)


def _words(field: str, words: str) -> Figure:
    return Figure(words, field, field)


def _tokens(field: str, number: int, *, of: str = "") -> Pieces:
    return _said(ngettext("{n} token", "{n} tokens", number), n=_number(field, number, of=of))


def _messages(field: str, number: int) -> Pieces:
    return _said(ngettext("{n} message", "{n} messages", number), n=_number(field, number))


def _turns(field: str, number: int) -> Pieces:
    return _said(ngettext("{n} turn", "{n} turns", number), n=_number(field, number))


def _mark(values: PolicyValues, name: str, tokens: int) -> Pieces:
    """Return the tokens of a mark, with the field that sets it: the share or the tokens."""
    in_tokens = f"{name}_tokens"
    is_absolute = getattr(values, in_tokens) == tokens
    return _tokens(in_tokens if is_absolute else name, tokens, of=name)


BUILT_IN_WRITER = gettext_lazy("the built-in extractor")
NEWEST_THAT_FIT = gettext_lazy("Sends as many of the newest messages as fit.")
OLDEST_DROPPED = gettext_lazy("At {high}, the oldest history is dropped, down to {low}.")


def _simple(values: PolicyValues, _limit: int) -> list[Pieces]:
    if values.window_size is None:
        return [[str(NEWEST_THAT_FIT)]]
    newest = _number("window_size", values.window_size)
    words = ngettext(
        "Sends the last {n} message.", "Sends the last {n} messages.", values.window_size
    )
    return [_said(words, n=newest)]


def _sliding(values: PolicyValues, limit: int) -> list[Pieces]:
    high = _mark(values, "compact_at", compute_compact_mark(values, prompt_limit=limit))
    if values.compact_every_turns is not None:
        words = gettext(
            "At {high}, the oldest history is dropped, which makes room for about {turns}."
        )
        every = _turns("compact_every_turns", values.compact_every_turns)
        return [_said(words, high=high, turns=every)]
    low = _mark(values, "compact_to", compute_low_mark(values, prompt_limit=limit))
    words = str(OLDEST_DROPPED)
    return [_said(words, high=high, low=low)]


def _summary(values: PolicyValues, limit: int) -> list[Pieces]:
    writer = _words("summarization_model", values.summarization_model or str(BUILT_IN_WRITER))
    sentences = [_prepared(values, limit, writer), _replaced(values, limit)]
    if values.pinned_kinds:
        names = [str(KIND_NAMES[kind]) for kind in values.pinned_kinds]
        kinds = ", ".join(f"{name[0].lower()}{name[1:]}" for name in names)
        words = gettext("A summary that loses any of these is rejected: {kinds}.")
        sentences.append(_said(words, kinds=_words("pinned_kinds", kinds)))
    if values.summary_instruction.strip() and values.summarization_model:
        words = gettext("{model} also follows [the instruction of this policy].")
        sentences.append(_said(words, about="summary_instruction", model=writer))
    if values.summary_sections:
        headings = _words("summary_sections", ", ".join(values.summary_sections))
        sentences.append(_said(gettext("A summary has the headings {names}."), names=headings))
    if values.approval != "nobody":
        who = _words("approval", str(APPROVALS[values.approval]))
        words = gettext("{who} approves each summary before it is used.")
        sentences.append(_said(words, who=who))
    return sentences


def _prepared(values: PolicyValues, limit: int, writer: Figure) -> Pieces:
    prepare = _mark(values, "prepare_at", compute_prepare_mark(values, prompt_limit=limit))
    longest = _tokens("summary_max_tokens", values.summary_max_tokens)
    if values.turn_threshold is None:
        return _said(
            gettext(
                "From {start} on, {model} prepares a summary of at most {longest} for older "
                "messages."
            ),
            start=prepare,
            model=writer,
            longest=longest,
        )
    return _said(
        gettext(
            "From {start} on, or after more than {turns}, {model} prepares a summary of at most "
            "{longest} for older messages."
        ),
        start=prepare,
        turns=_turns("turn_threshold", values.turn_threshold),
        model=writer,
        longest=longest,
    )


def _replaced(values: PolicyValues, limit: int) -> Pieces:
    high = _mark(values, "compact_at", compute_compact_mark(values, prompt_limit=limit))
    newest = _number("keep_last_messages", values.keep_last_messages)
    if values.compact_every_turns is not None:
        return _said(
            ngettext(
                "At {high}, the summary replaces them, which makes room for about {turns}. The "
                "newest {n} message stays in full if it fits.",
                "At {high}, the summary replaces them, which makes room for about {turns}. The "
                "newest {n} messages stay in full if they fit.",
                values.keep_last_messages,
            ),
            high=high,
            turns=_turns("compact_every_turns", values.compact_every_turns),
            n=newest,
        )
    return _said(
        ngettext(
            "At {high}, the summary replaces them, down to {low}. The newest {n} message stays in "
            "full if it fits.",
            "At {high}, the summary replaces them, down to {low}. The newest {n} messages stay in "
            "full if they fit.",
            values.keep_last_messages,
        ),
        high=high,
        low=_mark(values, "compact_to", compute_low_mark(values, prompt_limit=limit)),
        n=newest,
    )


def _state(values: PolicyValues, _limit: int) -> list[Pieces]:
    properties = values.state_schema.get("properties")
    names = ", ".join(properties) if isinstance(properties, dict) else ""
    newest = values.keep_last_messages
    if newest and names:
        words = ngettext(
            "Sends the newest {n} message, and a state ({names}) instead of the others.",
            "Sends the newest {n} messages, and a state ({names}) instead of the others.",
            newest,
        )
    elif newest:
        words = ngettext(
            "Sends the newest {n} message, and a state instead of the others.",
            "Sends the newest {n} messages, and a state instead of the others.",
            newest,
        )
    elif names:
        words = gettext("Sends a state ({names}) instead of earlier messages.")
    else:
        words = gettext("Sends a state instead of earlier messages.")
    count = _number("keep_last_messages", newest)
    return [_said(words, n=count, names=_words("state_schema", names))]


def _other(values: PolicyValues, _limit: int) -> list[Pieces]:
    strategy = _words("strategy", values.strategy)
    words = gettext("The strategy {strategy} decides which messages are sent.")
    return [_said(words, strategy=strategy)]


def _ceilings(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    ceilings: list[Pieces] = []
    if values.window_size is not None and values.strategy != "simple":
        ceilings.append(_messages("window_size", values.window_size))
    if values.window_turns is not None:
        ceilings.append(_turns("window_turns", values.window_turns))
    if values.window_tokens is not None:
        ceilings.append(_tokens("window_tokens", values.window_tokens))
    if ceilings:
        amounts = ceilings[0]
        for more in ceilings[1:]:
            either = pgettext("two amounts", "{first} or {second}")
            amounts = _said(either, first=amounts, second=more)
        sentences.append(_said(gettext("Sends at most {amounts} of the history."), amounts=amounts))
    if values.max_bytes is not None:
        words = ngettext(
            "A prompt has at most {n} byte.", "A prompt has at most {n} bytes.", values.max_bytes
        )
        sentences.append(_said(words, n=_number("max_bytes", values.max_bytes)))
    if values.pins_tokens is not None:
        words = ngettext(
            "Pins may take {n} token.", "Pins may take {n} tokens.", values.pins_tokens
        )
        sentences.append(_said(words, n=_number("pins_tokens", values.pins_tokens)))
    return sentences


def _cuts(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    longest = values.max_chars_per_message
    if longest is not None:
        words = ngettext(
            "Each message of the history is cut to {n} character.",
            "Each message of the history is cut to {n} characters.",
            longest,
        )
        sentences.append(_said(words, n=_number("max_chars_per_message", longest)))
    for tool, rule in values.tool_output_rules.items():
        whose = gettext("other tools") if tool == "*" else tool
        figures = {
            key: _number("tool_output_rules", number, of=f"{key} of {tool}")
            for key, number in rule.items()
        }
        figures["tool"] = Figure(whose, "tool_output_rules", f"rule of {tool}")
        if "limit" in rule and "keep_newest" in rule:
            words = ngettext(
                "Sends only the newest {keep_newest} results of {tool}, each cut to {limit} "
                "character.",
                "Sends only the newest {keep_newest} results of {tool}, each cut to {limit} "
                "characters.",
                rule["limit"],
            )
        elif "limit" in rule:
            words = ngettext(
                "Results of {tool} are cut to {limit} character.",
                "Results of {tool} are cut to {limit} characters.",
                rule["limit"],
            )
        elif "keep_newest" in rule:
            words = gettext("Sends only the newest {keep_newest} results of {tool}.")
        else:
            continue
        sentences.append(_said(words, about="", **figures))
    return sentences


def _layout(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if values.layout != "multi_turn":
        layout = _words("layout", values.layout)
        sentences.append(
            _said(gettext("Sends the history as text (layout {layout})."), layout=layout)
        )
    if values.show_date:
        words = gettext("Sends [the date] before the question.")
        sentences.append(_said(words, about="show_date"))
    if values.history_provider:
        provider = _words("history_provider", values.history_provider)
        words = gettext("The history provider {provider} chooses the earlier messages.")
        sentences.append(_said(words, provider=provider))
    if values.plain_sections:
        words = gettext("Sends preferences and retrieved context as [plain text].")
        sentences.append(_said(words, about="plain_sections"))
    if values.dates and values.layout == "multi_turn":
        words = gettext("Sends [the date] before the messages of each day.")
        sentences.append(_said(words, about="dates"))
    if values.references:
        sentences.append(_references(values))
    return sentences


def _references(values: PolicyValues) -> Pieces:
    number = values.reference_count
    count = _number("reference_count", number)
    if values.reference_share:
        return _said(
            ngettext(
                "Adds up to {n} excerpt of earlier messages that the prompt leaves out, in up to "
                "{share} of the prompt limit.",
                "Adds up to {n} excerpts of earlier messages that the prompt leaves out, in up to "
                "{share} of the prompt limit.",
                number,
            ),
            n=count,
            share=Figure(f"{values.reference_share:.0%}", "reference_share", "reference_share"),
        )
    return _said(
        ngettext(
            "Adds up to {n} excerpt of earlier messages ({tokens}) that match the question, from: "
            "{sources}.",
            "Adds up to {n} excerpts of earlier messages ({tokens}) that match the question, "
            "from: {sources}.",
            number,
        ),
        n=count,
        tokens=_tokens("reference_tokens", values.reference_tokens),
        sources=_words("reference_scope", REFERENCE_SCOPES[values.reference_scope].lower()),
    )


def _rights(values: PolicyValues) -> list[Pieces]:
    longest = values.input_length_limit
    words = ngettext(
        "New messages over {n} character are refused.",
        "New messages over {n} characters are refused.",
        longest,
    )
    sentences = [_said(words, n=_number("input_length_limit", longest))]
    if values.allowed_models is not None:
        models = _words("allowed_models", ", ".join(values.allowed_models) or gettext("none"))
        sentences.append(_said(gettext("Allowed models: {models}."), models=models))
    sentences += _files(values)
    if not values.temporary_chats:
        words = gettext("People cannot start [temporary chats].")
        sentences.append(_said(words, about="temporary_chats"))
    if values.retention_days is not None:
        number = values.retention_days
        days = ngettext("{n:,} day", "{n:,} days", number).format(n=number)
        words = gettext("Messages are erased after {days}, unless a legal hold covers them.")
        sentences.append(_said(words, days=_words("retention_days", days)))
    if values.chat_system == "ignore":
        sentences.append(
            _said(
                gettext("The system text of a chat is [not sent]; only the policy’s is."),
                about="chat_system",
            )
        )
    if values.system_text and values.hide_system_text:
        words = gettext("The system text is [hidden] from the people who chat.")
        sentences.append(_said(words, about="hide_system_text"))
    return sentences


def _files(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if values.file_kinds is not None:
        names = [str(StoredFile.Kind(kind).label) for kind in values.file_kinds]
        kinds = _words("file_kinds", ", ".join(names) or gettext("none"))
        sentences.append(_said(gettext("Allowed kinds of files: {kinds}."), kinds=kinds))
    if values.file_mebibytes is not None:
        size = _number("file_mebibytes", values.file_mebibytes)
        sentences.append(_said(gettext("A file has at most {n} MiB."), n=size))
    if (most := values.files_per_message) is not None:
        words = ngettext(
            "A message has at most {n} file.", "A message has at most {n} files.", most
        )
        sentences.append(_said(words, n=_number("files_per_message", most)))
    return sentences


def _servers(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if not values.warm_up:
        words = gettext("Cache warm-ups are [off].")
        sentences.append(_said(words, about="warm_up"))
    if values.unmanaged != "keys":
        which = _words("unmanaged", UNMANAGED[values.unmanaged].lower())
        words = gettext("Pass-through requests of API clients: {which}.")
        sentences.append(_said(words, which=which))
    if not values.cache_marks:
        words = gettext("Sends [no cache breakpoints] to servers with Anthropic’s API.")
        sentences.append(_said(words, about="cache_marks"))
    return sentences


def _memory(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    if not values.own_instructions:
        words = gettext("Personal instructions are [not sent].")
        sentences.append(_said(words, about="own_instructions"))
    if not values.preferences:
        words = gettext("Preferences are [not saved or sent].")
        sentences.append(_said(words, about="preferences"))
    elif not values.inferred_preferences:
        words = gettext("Preferences are [not suggested] by a model.")
        sentences.append(_said(words, about="inferred_preferences"))
    if values.recent_by_user is not None:
        words = ngettext(
            "Sends the newest {n} message of the person's other chats.",
            "Sends the newest {n} messages of the person's other chats.",
            values.recent_by_user,
        )
        sentences.append(_said(words, n=_number("recent_by_user", values.recent_by_user)))
    if values.memory_providers is not None:
        names = ", ".join(values.memory_providers) or gettext("no provider")
        words = gettext("Sends personal data only to {providers}.")
        sentences.append(_said(words, providers=_words("memory_providers", names)))
    if values.skills:
        skills = _words("skills", ", ".join(values.skills))
        sentences.append(_said(gettext("Skills in the system text: {skills}."), skills=skills))
    return sentences
