"""The search line of the ledger: `event:policy.* actor:ines at:2026-11-01..2026-11-20 -chat:any`.

A comma means OR, a space means AND, a leading minus means NOT. The text is the complete search: it
is in the page's URL, and an export selects the same rows. There is no hidden date range.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from django.db.models import Case, Q, TextField, Value, When
from django.db.models.functions import Cast
from django.db.models.lookups import Contains, Exact, Regex
from django.utils.translation import gettext, gettext_lazy, pgettext

from contextpolicy.audit.search_values import (
    SearchNotUnderstood,
    parse_search_id,
    parse_search_time,
    parse_uuid,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.event_types import EVENT_TYPES
from contextpolicy.ledger import INSTANCE
from contextpolicy.models import AuditEvent
from contextpolicy.roles import find_person_by_name

LONGEST = 500
MOST_TERMS = 20
# The id of an actor without a name.
PERSON = re.compile(r"user:[0-9]{1,18}")
NO_NAME = re.compile(rf"{PERSON.pattern}|people|worker|system")
# Events whose `changes` name fields, of a policy or of another object.
WITH_FIELDS = sorted(kind for kind in EVENT_TYPES if kind.endswith(("changed", "version_created")))
# Events in a user's chats that the server caused and that remove or release data.
ON_SCHEDULE = ("chat.erased", "message.erased", "receipt.erased")
# An id or a short name by which an event's data refers to an object.
OBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,99}")
HELP = gettext_lazy(
    "Keys: event:, actor:, person:, object:, chat:, turn:, id:, policy:, field:, at:. “actor:” "
    "finds actions by a user, and “person:” finds actions by others that affect a user. "
    "“id:” finds a chat or a turn. A comma means OR, a space means AND, and a leading minus "
    "means NOT. Examples: event:policy.* actor:ines · person:ines · field:window_size "
    "at:2026-11-01..2026-11-20 · -actor:worker"
)


@dataclass(frozen=True, slots=True)
class Term:
    """One part of a search line: `key:value,value`."""

    key: str
    values: tuple[str, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{'-' * self.negated}{self.key}:{','.join(self.values)}"


@dataclass(frozen=True, slots=True)
class LedgerSearch:
    """A parsed search line. `text`: its normalised form, with ids for people."""

    terms: tuple[Term, ...]
    condition: Q

    @property
    def text(self) -> str:
        return " ".join(str(term) for term in self.terms)

    @property
    def range_words(self) -> str:
        """Describe the time range of the search in words. Negated terms are ignored."""
        said = [
            join_alternatives(term.values)
            for term in self.terms
            if term.key == "at" and not term.negated
        ]
        if not said:
            return gettext("All time")
        words = said[0]
        for more in said[1:]:
            words = gettext("{first} and {second}").format(first=words, second=more)
        return words


def join_alternatives(values: Sequence[str]) -> str:
    words = values[0]
    for more in values[1:]:
        words = pgettext("alternatives", "{first} or {second}").format(first=words, second=more)
    return words


def parse_search_line(text: str, *, names: bool = True) -> LedgerSearch:
    """Parse a search line. Raises `SearchNotUnderstood`.

    `names`: whether the user may learn which user names exist.
    """
    words = text.split()
    if len(text) > LONGEST or len(words) > MOST_TERMS:
        raise SearchNotUnderstood(
            gettext(
                "A search can have at most {n} characters and {parts} terms. Shorten the search."
            ).format(n=LONGEST, parts=MOST_TERMS),
            reason="too_long",
        )
    terms, condition = [], Q()
    for word in words:
        term, found = parse_search_term(word, names=names)
        terms.append(term)
        condition &= negate(found) if term.negated else found
    return LedgerSearch(tuple(terms), condition)


def negate(condition: Q) -> Q:
    """Return the condition for all other rows, including those for which it is NULL.

    A comparison with a key that the data of an event does not have is NULL, and so is its plain
    negation.
    """
    return Q(Exact(Case(When(condition, then=Value(True)), default=Value(False)), Value(False)))  # noqa: FBT003


def parse_search_term(word: str, *, names: bool) -> tuple[Term, Q]:
    """Parse one part of a search line into a term and its condition, before any negation.

    Raises `SearchNotUnderstood`.
    """
    negated = word.startswith("-")
    key, colon, rest = word.removeprefix("-").partition(":")
    if not colon:
        key, rest = infer_search_key(key)
    look = KEYS.get(key.lower())
    if look is None:
        known = ", ".join(f"{name}:" for name in KEYS)
        sentence = gettext("“{key}:” is not a search key. Use one of {known}.")
        raise SearchNotUnderstood(sentence.format(key=key, known=known), reason="unknown_key")
    values = [value for value in rest.split(",") if value]
    if not values:
        raise SearchNotUnderstood(
            gettext("“{key}:” has no value. Add one.").format(key=key), reason="no_value"
        )
    found, spelled = Q(), list[str]()
    for value in values:
        if (
            look in (filter_by_actor, filter_by_person)
            and not names
            and not NO_NAME.fullmatch(value)
        ):
            sentence = gettext("Write user:<id> after “{key}:”.")
            if look is filter_by_actor:
                sentence = gettext("Write user:<id>, people, worker or system after “{key}:”.")
            raise SearchNotUnderstood(sentence.format(key=key), reason="names_not_allowed")
        condition, spelling = look(value)
        found |= condition
        spelled.append(spelling)
    return Term(key.lower(), tuple(spelled), negated), found


def infer_search_key(word: str) -> tuple[str, str]:
    """Return the key and the value of a word without a key.

    The word is recognised as an event type or an id. Raises `SearchNotUnderstood`.
    """
    if word in EVENT_TYPES:
        return "event", word
    if parse_uuid(word):
        return "id", word
    raise SearchNotUnderstood(
        gettext(
            "“{word}” needs a key, such as actor:{word} or policy:{word}. Only event types "
            "and IDs work without one."
        ).format(word=word),
        reason="no_key",
    )


def filter_by_event(value: str) -> tuple[Q, str]:
    """Filter by event type, by family (`policy`, `policy.*`), or by a beginning such as `pol*`.

    Raises `SearchNotUnderstood`.
    """
    value = value.lower()
    stem = value.removesuffix("*")
    family = stem if stem.endswith(".") or not stem else f"{stem}."
    kinds = [kind for kind in EVENT_TYPES if kind == value]
    if value.endswith("*"):
        kinds = [kind for kind in EVENT_TYPES if kind.startswith(stem)]
    elif not kinds:
        kinds = [kind for kind in EVENT_TYPES if kind.startswith(family)]
    if not kinds:
        families = {kind.partition(".")[0] for kind in EVENT_TYPES}
        near = get_close_matches(value, [*EVENT_TYPES, *families], n=3)
        sentence = gettext("“{value}” is not an event. Write an event such as event:policy.*")
        if near:
            sentence = gettext("“{value}” is not an event. Did you mean {near}?")
        raise SearchNotUnderstood(
            sentence.format(value=value, near=join_alternatives(near or [""])),
            reason="unknown_event",
        )
    return Q(type__in=sorted(kinds)), value


def filter_by_actor(value: str) -> tuple[Q, str]:
    """Filter by actor: a user or a component of the product. Raises `SearchNotUnderstood`."""
    if value in {"worker", "system"}:
        return Q(actor=value), value
    if value == "people":
        return Q(actor__startswith="user:"), value
    if NO_NAME.fullmatch(value):
        return Q(actor=value), value
    actor = find_actor_id(value, is_actor=True)
    return Q(actor=actor), actor


def filter_by_person(value: str) -> tuple[Q, str]:
    """Return the filter for events that affect a user, and the user as an actor.

    The filter matches events about the user's account, roles, keys, policies and holds. In the
    user's chats, it matches what others did and erasures by the server. Events that the user
    caused never match. The ledger itself records the owner of a chat, so erased chats are found
    too. Raises `SearchNotUnderstood`.
    """
    person = value if PERSON.fullmatch(value) else find_actor_id(value)
    number = int(person.removeprefix("user:"))
    chats = AuditEvent.objects.filter(type="chat.created", actor=person).values("chat_id")
    by_others = Q(actor__startswith="user:") | Q(type__in=ON_SCHEDULE)
    affected = Q(data__user=number) | Q(data__owner=number) | (Q(chat_id__in=chats) & by_others)
    return affected & ~Q(actor=person), person


def find_actor_id(name: str, *, is_actor: bool = False) -> str:
    """Return the actor id of a user name. Raises `SearchNotUnderstood`.

    `is_actor`: the error also suggests `people`, `worker` and `system`.
    """
    found = find_person_by_name(name)
    if found is None:
        sentence = gettext(
            "No user is named “{name}”. Enter a user name, or user:<id> for a removed user."
        )
        if is_actor:
            sentence = gettext(
                "No user is named “{name}”. Enter a user name, user:<id> for a removed "
                "user, people, worker or system."
            )
        raise SearchNotUnderstood(sentence.format(name=name), reason="unknown_person")
    return f"user:{found.pk}"


def filter_by_object(value: str) -> tuple[Q, str]:
    """Filter by the id or short name of an object, or by the id of a chat or turn.

    Raises `SearchNotUnderstood`.
    """
    if not OBJECT.fullmatch(value):
        raise SearchNotUnderstood(
            gettext(
                "“{value}” is not an ID or slug. After “object:”, write the ID or slug of an "
                "object, such as a policy, a tool server or a message."
            ).format(value=value),
            reason="no_object",
        )
    found = parse_uuid(value)
    spelled = str(found) if found else value
    written = json.dumps(spelled)
    # Matches the values of the data, never its keys.
    data = Cast("data", TextField())
    as_value = rf"{re.escape(written)}\s*[,}}\]]"
    condition = Q(Contains(data, written)) & Q(Regex(data, as_value))
    if found:
        condition |= Q(chat_id=found) | Q(turn_id=found)
    return condition, spelled


def filter_by_chat(value: str) -> tuple[Q, str]:
    """Filter by chat; `any` matches all chats and `none` events without a chat.

    Raises `SearchNotUnderstood`.
    """
    if value in {"any", "none"}:
        outside = Q(scope=INSTANCE)
        return (outside if value == "none" else ~outside), value
    found = parse_search_id("chat", value)
    return Q(chat_id=found), str(found)


def filter_by_turn(value: str) -> tuple[Q, str]:
    """Filter by turn. Raises `SearchNotUnderstood`."""
    found = parse_search_id("turn", value)
    return Q(turn_id=found), str(found)


def filter_by_id(value: str) -> tuple[Q, str]:
    """Filter by the id of a chat or a turn. Raises `SearchNotUnderstood`."""
    found = parse_search_id("id", value)
    return Q(chat_id=found) | Q(turn_id=found), str(found)


def filter_by_policy(value: str) -> tuple[Q, str]:
    """Filter the events of the policy with this slug."""
    return Q(type__startswith="policy.", data__policy=value), value


def filter_by_field(value: str) -> tuple[Q, str]:
    """Filter changes by a field of a policy, or by its name, description or retirement.

    Raises `SearchNotUnderstood`.
    """
    names = [*PolicyValues.__dataclass_fields__, "name", "description", "retired"]
    if value not in names:
        near = get_close_matches(value, names, n=3, cutoff=0.5)
        sentence = gettext(
            "A policy has no field “{value}”. Write a field such as field:window_size."
        )
        if near:
            sentence = gettext("A policy has no field “{value}”. Did you mean {near}?")
        raise SearchNotUnderstood(
            sentence.format(value=value, near=join_alternatives(near or [""])),
            reason="unknown_field",
        )
    return Q(type__in=WITH_FIELDS, data__changes__has_key=value), value


def filter_by_time(value: str) -> tuple[Q, str]:
    """Filter by a day, a minute or a range in UTC. Both ends are included; one may be missing.

    Raises `SearchNotUnderstood`.
    """
    first, dots, last = value.partition("..")
    condition = Q()
    if first:
        condition &= Q(at__gte=parse_search_time(first)[0])
    if last or not dots:
        condition &= Q(at__lt=parse_search_time(last or first)[1])
    if not first and not last:
        raise SearchNotUnderstood(
            gettext("“at:” needs a date or a range, such as at:2026-11-01..2026-11-20."),
            reason="no_day",
        )
    return condition, value


KEYS: Mapping[str, Callable[[str], tuple[Q, str]]] = {
    "event": filter_by_event,
    "actor": filter_by_actor,
    "person": filter_by_person,
    "object": filter_by_object,
    "chat": filter_by_chat,
    "turn": filter_by_turn,
    "id": filter_by_id,
    "policy": filter_by_policy,
    "field": filter_by_field,
    "at": filter_by_time,
}


def format_search_line(terms: Iterable[tuple[str, object]]) -> str:
    """Format keys and values as a search line. Keys without a value are omitted."""
    return " ".join(f"{key}:{value}" for key, value in terms if value)
