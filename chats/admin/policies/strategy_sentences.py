"""The sentences of a policy's description about its strategy: the history, summaries, the state."""

from django.utils.translation import gettext, gettext_lazy, ngettext

from chats.admin.policies.figures import (
    Figure,
    Pieces,
    build_mark,
    build_number,
    build_tokens,
    build_turns,
    build_words,
    fill_sentence,
)
from contextpolicy.engine.policy.budget import (
    compute_compact_mark,
    compute_low_mark,
    compute_prepare_mark,
)
from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.wording import join_items

BUILT_IN_WRITER = gettext_lazy("the built-in extractor")
NEWEST_THAT_FIT = gettext_lazy("Sends as many of the newest messages as fit.")
OLDEST_DROPPED = gettext_lazy(
    "When the prompt reaches {high}, the oldest messages are dropped to reduce it to {low}."
)


def describe_strategy(values: PolicyValues, limit: int) -> list[Pieces]:
    """Return the sentences about the strategy with a prompt limit of `limit` tokens."""
    describe = {
        "simple": _simple,
        "sliding_window": _describe_sliding_window,
        "dynamic_summary": _summary,
        "entity_state": _state,
    }
    return describe.get(values.strategy, _other)(values, limit)


def _simple(values: PolicyValues, _limit: int) -> list[Pieces]:
    if values.window_size is None:
        return [[str(NEWEST_THAT_FIT)]]
    newest = build_number("window_size", values.window_size)
    words = ngettext(
        "Sends the last {n} message.", "Sends the last {n} messages.", values.window_size
    )
    return [fill_sentence(words, n=newest)]


def _describe_sliding_window(values: PolicyValues, limit: int) -> list[Pieces]:
    high = build_mark(values, "compact_at", compute_compact_mark(values, prompt_limit=limit))
    if values.compact_every_turns is not None:
        words = gettext(
            "When the prompt reaches {high}, the oldest messages are dropped to make room for "
            "about {turns}."
        )
        every = build_turns("compact_every_turns", values.compact_every_turns)
        return [fill_sentence(words, high=high, turns=every)]
    low = build_mark(values, "compact_to", compute_low_mark(values, prompt_limit=limit))
    words = str(OLDEST_DROPPED)
    return [fill_sentence(words, high=high, low=low)]


def _summary(values: PolicyValues, limit: int) -> list[Pieces]:
    writer = build_words("summarization_model", values.summarization_model or str(BUILT_IN_WRITER))
    sentences = [_describe_preparation(values, limit, writer), _describe_replacement(values, limit)]
    if values.pinned_kinds:
        labels = FIELDS["pinned_kinds"].labels
        names = [gettext(labels[kind]) for kind in values.pinned_kinds]
        kinds = join_items(f"{name[0].lower()}{name[1:]}" for name in names)
        words = gettext("A summary that loses any of these is rejected: {kinds}.")
        sentences.append(fill_sentence(words, kinds=build_words("pinned_kinds", kinds)))
    if values.summary_instruction.strip() and values.summarization_model:
        words = gettext("{model} also follows [this policy’s instruction].")
        sentences.append(fill_sentence(words, about="summary_instruction", model=writer))
    if values.summary_sections:
        headings = build_words("summary_sections", join_items(values.summary_sections))
        sentences.append(
            fill_sentence(gettext("A summary has the headings {names}."), names=headings)
        )
    if values.approval != "nobody":
        who = build_words("approval", gettext(FIELDS["approval"].labels[values.approval]))
        words = gettext("{who} approves each summary before it is used.")
        sentences.append(fill_sentence(words, who=who))
    return sentences


def _describe_preparation(values: PolicyValues, limit: int, writer: Figure) -> Pieces:
    prepare = build_mark(values, "prepare_at", compute_prepare_mark(values, prompt_limit=limit))
    longest = build_tokens("summary_max_tokens", values.summary_max_tokens)
    if values.turn_threshold is None:
        return fill_sentence(
            gettext(
                "When the prompt reaches {start}, {model} prepares a summary of the older "
                "messages, with at most {longest}."
            ),
            start=prepare,
            model=writer,
            longest=longest,
        )
    return fill_sentence(
        gettext(
            "When the prompt reaches {start}, or after more than {turns}, {model} prepares a "
            "summary of the older messages, with at most {longest}."
        ),
        start=prepare,
        turns=build_turns("turn_threshold", values.turn_threshold),
        model=writer,
        longest=longest,
    )


def _describe_replacement(values: PolicyValues, limit: int) -> Pieces:
    high = build_mark(values, "compact_at", compute_compact_mark(values, prompt_limit=limit))
    newest = build_number("keep_last_messages", values.keep_last_messages)
    if values.compact_every_turns is not None:
        return fill_sentence(
            ngettext(
                "When the prompt reaches {high}, the summary replaces these messages to make room "
                "for about {turns}. The "
                "newest {n} message stays in full if it fits.",
                "When the prompt reaches {high}, the summary replaces these messages to make room "
                "for about {turns}. The "
                "newest {n} messages stay in full if they fit.",
                values.keep_last_messages,
            ),
            high=high,
            turns=build_turns("compact_every_turns", values.compact_every_turns),
            n=newest,
        )
    return fill_sentence(
        ngettext(
            "When the prompt reaches {high}, the summary replaces these messages and reduces the "
            "prompt to {low}. The newest {n} message stays in "
            "full if it fits.",
            "When the prompt reaches {high}, the summary replaces these messages and reduces the "
            "prompt to {low}. The newest {n} messages stay in "
            "full if they fit.",
            values.keep_last_messages,
        ),
        high=high,
        low=build_mark(values, "compact_to", compute_low_mark(values, prompt_limit=limit)),
        n=newest,
    )


def _state(values: PolicyValues, _limit: int) -> list[Pieces]:
    properties = values.state_schema.get("properties")
    names = join_items(properties) if isinstance(properties, dict) else ""
    newest = values.keep_last_messages
    if newest and names:
        words = ngettext(
            "Sends the newest {n} message, and a state ({names}) instead of the older ones.",
            "Sends the newest {n} messages, and a state ({names}) instead of the older ones.",
            newest,
        )
    elif newest:
        words = ngettext(
            "Sends the newest {n} message, and a state instead of the older ones.",
            "Sends the newest {n} messages, and a state instead of the older ones.",
            newest,
        )
    elif names:
        words = gettext("Sends a state ({names}) instead of earlier messages.")
    else:
        words = gettext("Sends a state instead of earlier messages.")
    count = build_number("keep_last_messages", newest)
    return [fill_sentence(words, n=count, names=build_words("state_schema", names))]


def _other(values: PolicyValues, _limit: int) -> list[Pieces]:
    strategy = build_words("strategy", values.strategy)
    words = gettext("The strategy {strategy} decides which messages are sent.")
    return [fill_sentence(words, strategy=strategy)]
