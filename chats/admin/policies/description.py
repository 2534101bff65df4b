"""Describes a policy in sentences, each about one field or several."""

from collections.abc import Callable, Mapping
from typing import Any

from django.utils.translation import gettext, ngettext, pgettext

from chats.admin.policies.figures import (
    PLACES,
    Figure,
    Pieces,
    build_messages,
    build_number,
    build_tokens,
    build_turns,
    build_words,
    fill_sentence,
)
from chats.admin.policies.strategy_sentences import describe_strategy
from chats.models import StoredFile
from contextpolicy.engine.policy.budget import compute_prompt_limit
from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.engine.policy.fields.declaration import PolicyField
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.text.phrases import Plural
from contextpolicy.wording import join_items

# Names of values that the declaration of their field does not have.
VALUE_NAMES: Mapping[str, Mapping[str, Any]] = {"file_kinds": dict(StoredFile.Kind.choices)}


def describe_policy(values: PolicyValues) -> str:
    """Describe these values in a few sentences with their numbers."""
    return "".join(
        each.text if isinstance(each, Figure) else each for each in build_description_parts(values)
    )


def build_description_parts(values: PolicyValues) -> list[str | Figure]:
    limit = compute_prompt_limit(values, model_window=None)
    sentences = [
        fill_sentence(
            ngettext(
                "Sends at most {n} token and keeps {reserve} free for the reply.",
                "Sends at most {n} tokens and keeps {reserve} free for the reply.",
                limit,
            ),
            n=build_number("token_budget", limit),
            reserve=build_number("reserve_tokens", values.reserve_tokens),
        ),
        *describe_strategy(values, limit),
    ]
    for name, declared in FIELDS.items():
        describe = _TOGETHER.get(name)
        sentences += describe(values) if describe else describe_field(declared, values)
    pieces = sentences[0]
    for sentence in sentences[1:]:
        # Some languages have no space between sentences.
        following = pgettext("two sentences", "{first} {second}")
        pieces = fill_sentence(following, first=pieces, second=sentence)
    return list(pieces)


def describe_field(declared: PolicyField, values: PolicyValues) -> list[Pieces]:
    """Return a list with the declared sentence about a field.

    Empty if no sentence is declared, or if the value needs none.
    """
    value = getattr(values, declared.name)
    is_usual = value == declared.default and (declared.is_optional or declared.kind != "integer")
    if not declared.sentence or is_usual:
        return []
    if declared.described_if is not None and not declared.described_if(values):
        return []
    words = declared.sentence
    words = ngettext(*words, value) if isinstance(words, Plural) else gettext(words)
    figure = build_figure(declared, value)
    names = [name for name, _ in PLACES.findall(words) if name]
    return [fill_sentence(words, about=declared.name, **dict.fromkeys(names, figure))]


def build_figure(declared: PolicyField, value: Any) -> Figure:
    """Return a field's value as a figure."""
    if declared.kind == "integer":
        return build_number(declared.name, value)
    names = VALUE_NAMES.get(declared.name, {})
    if declared.kind == "names":
        listed = join_items(str(names.get(each, each)) for each in value)
        return build_words(declared.name, listed or gettext(declared.nothing))
    label = declared.labels.get(str(value), "")
    return build_words(declared.name, gettext(label).lower() if label else str(value))


def _windows(values: PolicyValues) -> list[Pieces]:
    ceilings: list[Pieces] = []
    if values.window_size is not None and values.strategy != "simple":
        ceilings.append(build_messages("window_size", values.window_size))
    if values.window_turns is not None:
        ceilings.append(build_turns("window_turns", values.window_turns))
    if values.window_tokens is not None:
        ceilings.append(build_tokens("window_tokens", values.window_tokens))
    if ceilings:
        amounts = ceilings[0]
        for more in ceilings[1:]:
            either = pgettext("two amounts", "{first} or {second}")
            amounts = fill_sentence(either, first=amounts, second=more)
        return [fill_sentence(gettext("Sends at most {amounts} of the history."), amounts=amounts)]
    return []


def _tool_rules(values: PolicyValues) -> list[Pieces]:
    sentences: list[Pieces] = []
    for tool, rule in values.tool_output_rules.items():
        whose = gettext("other tools") if tool == "*" else tool
        figures = {
            key: build_number("tool_output_rules", number, of=f"{key} of {tool}")
            for key, number in rule.items()
        }
        figures["tool"] = Figure(whose, "tool_output_rules", f"rule of {tool}")
        if "keep_newest" in rule:
            words = ngettext(
                "Sends only the newest {keep_newest} result of {tool}.",
                "Sends only the newest {keep_newest} results of {tool}.",
                rule["keep_newest"],
            )
            sentences.append(fill_sentence(words, about="", **figures))
        if "limit" in rule:
            words = ngettext(
                "Results of {tool} are cut to {limit} character.",
                "Results of {tool} are cut to {limit} characters.",
                rule["limit"],
            )
            sentences.append(fill_sentence(words, about="", **figures))
    return sentences


def _layout(values: PolicyValues) -> list[Pieces]:
    if values.layout == "multi_turn":
        return []
    layout = build_words("layout", values.layout)
    return [fill_sentence(gettext("Sends the history as text (layout {layout})."), layout=layout)]


def _references(values: PolicyValues) -> list[Pieces]:
    if not values.references:
        return []
    number = values.reference_count
    count = build_number("reference_count", number)
    if values.reference_share:
        words = ngettext(
            "Adds up to {n} excerpt of earlier messages that the prompt leaves out. It uses up "
            "to {share} of the prompt limit.",
            "Adds up to {n} excerpts of earlier messages that the prompt leaves out. They use "
            "up to {share} of the prompt limit.",
            number,
        )
        share = build_words("reference_share", f"{values.reference_share:.0%}")
        return [fill_sentence(words, n=count, share=share)]
    words = ngettext(
        "Adds up to {n} excerpt of earlier messages ({tokens}) that match the question, from: "
        "{sources}.",
        "Adds up to {n} excerpts of earlier messages ({tokens}) that match the question, "
        "from: {sources}.",
        number,
    )
    tokens = build_tokens("reference_tokens", values.reference_tokens)
    sources = build_figure(FIELDS["reference_scope"], values.reference_scope)
    return [fill_sentence(words, n=count, tokens=tokens, sources=sources)]


def _retention(values: PolicyValues) -> list[Pieces]:
    number = values.retention_days
    if number is None:
        return []
    days = ngettext("{n:,} day", "{n:,} days", number).format(n=number)
    words = gettext("Messages are erased after {days}, unless a legal hold covers them.")
    return [fill_sentence(words, days=build_words("retention_days", days))]


# The sentences about several fields, by the first of them.
_TOGETHER: Mapping[str, Callable[[PolicyValues], list[Pieces]]] = {
    "layout": _layout,
    "window_size": _windows,
    "tool_output_rules": _tool_rules,
    "references": _references,
    "retention_days": _retention,
}
