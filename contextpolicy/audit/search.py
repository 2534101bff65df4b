"""The search line of the ledger: `event:policy.* actor:ines at:2026-11-01..2026-11-20 -chat:any`.

A comma means or, a space means and, a minus in front means not. The text is everything: it stands
in the address of the page, and an export takes the same rows. There is no hidden range of dates.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q

from contextpolicy.engine.policy import PolicyValues
from contextpolicy.ledger import EVENT_TYPES, INSTANCE

LONGEST = 500
MOST_TERMS = 20
# What says who acted without a person's name.
NO_NAME = re.compile(r"user:[0-9]{1,18}|people|worker|system")
# The events whose `changes` name fields of a policy or of what else has fields.
WITH_FIELDS = sorted(kind for kind in EVENT_TYPES if kind.endswith(("changed", "version_created")))
HELP = (
    "Keys: event:, actor:, chat:, turn:, policy:, field:, at:. A comma means or, a space and, a "
    "minus in front not. Examples: event:policy.* actor:ines · field:window_size "
    "at:2026-11-01..2026-11-20 · -actor:worker"
)


class SearchNotUnderstood(Exception):
    """A part of a search line is not one that the ledger can look for."""

    code = "search_not_understood"


@dataclass(frozen=True, slots=True)
class Term:
    """One `key:value,value` of a search line."""

    key: str
    values: tuple[str, ...]
    negated: bool = False

    def __str__(self) -> str:
        return f"{'-' * self.negated}{self.key}:{','.join(self.values)}"


@dataclass(frozen=True, slots=True)
class LedgerSearch:
    """A search line that was understood. `text`: the same in one spelling, with ids for people."""

    terms: tuple[Term, ...]
    condition: Q

    @property
    def text(self) -> str:
        """Write the line in one spelling."""
        return " ".join(str(term) for term in self.terms)

    @property
    def range_words(self) -> str:
        """Say which time the search covers."""
        said = [" or ".join(t.values) for t in self.terms if t.key == "at" and not t.negated]
        return " and ".join(said) or "All time"


def understood(text: str, *, names: bool = True) -> LedgerSearch:
    """Return what a search line asks for. Raises `SearchNotUnderstood`.

    `names`: whether who asks may learn which names people sign in with.
    """
    words = text.split()
    if len(text) > LONGEST or len(words) > MOST_TERMS:
        raise SearchNotUnderstood(
            f"A search has at most {LONGEST} characters and {MOST_TERMS} parts. Leave some out."
        )
    terms, condition = [], Q()
    for word in words:
        term, found = term_of(word, names=names)
        terms.append(term)
        condition &= ~found if term.negated else found
    return LedgerSearch(tuple(terms), condition)


def term_of(word: str, *, names: bool) -> tuple[Term, Q]:
    """Return one part of a search line with its condition. Raises `SearchNotUnderstood`."""
    negated = word.startswith("-")
    key, colon, rest = word.removeprefix("-").partition(":")
    if not colon:
        key, rest = bare(key)
    look = KEYS.get(key.lower())
    if look is None:
        known = ", ".join(f"{name}:" for name in KEYS)
        raise SearchNotUnderstood(f"The ledger has no “{key}:”. It can be searched by {known}.")
    values = [value for value in rest.split(",") if value]
    if not values:
        raise SearchNotUnderstood(f"Behind “{key}:” there is nothing. Write what to look for.")
    found, spelled = Q(), list[str]()
    for value in values:
        if look is by_actor and not names and not NO_NAME.fullmatch(value):
            raise SearchNotUnderstood("Write user:<id>, people, worker or system behind “actor:”.")
        condition, spelling = look(value)
        found |= condition
        spelled.append(spelling)
    return Term(key.lower(), tuple(spelled), negated), found


def bare(word: str) -> tuple[str, str]:
    """Return key and value of a word without a key: a type of event or an id says itself.

    Raises `SearchNotUnderstood`.
    """
    if word in EVENT_TYPES:
        return "event", word
    if as_uuid(word):
        return "id", word
    raise SearchNotUnderstood(
        f"“{word}” has no key, and the ledger holds no free text. "
        f"Write what it is, as in actor:{word} or policy:{word}."
    )


def by_event(value: str) -> tuple[Q, str]:
    """Look for a type, or for a family as in `policy.*`. Raises `SearchNotUnderstood`."""
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
        hint = f"Did you mean {' or '.join(near)}?" if near else "An example is event:policy.*"
        raise SearchNotUnderstood(f"There is no event “{value}”. {hint}")
    return Q(type__in=sorted(kinds)), value


def by_actor(value: str) -> tuple[Q, str]:
    """Look for what a person or a part of the product did. Raises `SearchNotUnderstood`."""
    if value in {"worker", "system"}:
        return Q(actor=value), value
    if value == "people":
        return Q(actor__startswith="user:"), value
    if NO_NAME.fullmatch(value):
        return Q(actor=value), value
    person = User.objects.filter(username=value).values_list("pk", flat=True).first()
    if person is None:
        raise SearchNotUnderstood(
            f"Nobody is called “{value}” here. Write a name as it is used to sign in, or user:<id> "
            "for somebody who is gone, people, worker or system."
        )
    return Q(actor=f"user:{person}"), f"user:{person}"


def by_chat(value: str) -> tuple[Q, str]:
    """Look for the events of a chat; `any` and `none` are those of all and of no chat."""
    if value in {"any", "none"}:
        outside = Q(scope=INSTANCE)
        return (outside if value == "none" else ~outside), value
    found = an_id("chat", value)
    return Q(chat_id=found), str(found)


def by_turn(value: str) -> tuple[Q, str]:
    """Look for the events of a turn. Raises `SearchNotUnderstood`."""
    found = an_id("turn", value)
    return Q(turn_id=found), str(found)


def by_id(value: str) -> tuple[Q, str]:
    """Look for the events of a chat or a turn. Raises `SearchNotUnderstood`."""
    found = an_id("id", value)
    return Q(chat_id=found) | Q(turn_id=found), str(found)


def by_policy(value: str) -> tuple[Q, str]:
    """Look for what happened to a policy, by its short name."""
    return Q(type__startswith="policy.", data__policy=value), value


def by_field(value: str) -> tuple[Q, str]:
    """Look for changes of one field of a policy. Raises `SearchNotUnderstood`."""
    names = [*PolicyValues.__dataclass_fields__, "name", "description", "retired"]
    if value not in names:
        near = get_close_matches(value, names, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else "An example is field:window_size."
        raise SearchNotUnderstood(f"A policy has no field “{value}”. {hint}")
    return Q(type__in=WITH_FIELDS, data__changes__has_key=value), value


def by_time(value: str) -> tuple[Q, str]:
    """Look for a day or a range, both ends included, in UTC. Raises `SearchNotUnderstood`."""
    first, dots, last = value.partition("..")
    condition = Q()
    if first:
        condition &= Q(at__gte=moment(first)[0])
    if last or not dots:
        condition &= Q(at__lt=moment(last or first)[1])
    if not first and not last:
        raise SearchNotUnderstood("“at:” needs a day or a range, as in at:2026-11-01..2026-11-20.")
    return condition, value


def moment(text: str) -> tuple[datetime, datetime]:
    """Return the start and the end of a day or a minute. Raises `SearchNotUnderstood`."""
    for form, length in (("%Y-%m-%d", timedelta(days=1)), ("%Y-%m-%dT%H:%M", timedelta(minutes=1))):
        try:
            start = datetime.strptime(text, form).replace(tzinfo=UTC)
            return start, start + length
        except (ValueError, OverflowError):
            continue
    raise SearchNotUnderstood(
        f"“{text}” is no day. Write 2026-11-20, or 2026-11-20T14:05 for a minute, in UTC."
    )


def an_id(key: str, value: str) -> UUID:
    """Return an id. Raises `SearchNotUnderstood`."""
    found = as_uuid(value)
    if found is None:
        raise SearchNotUnderstood(
            f"“{value}” is no id. “{key}:” needs a whole one: 32 digits and letters with dashes."
        )
    return found


def as_uuid(text: str) -> UUID | None:
    """Return the id that a text is, or None."""
    try:
        return UUID(text)
    except ValueError:
        return None


KEYS: Mapping[str, Callable[[str], tuple[Q, str]]] = {
    "event": by_event,
    "actor": by_actor,
    "chat": by_chat,
    "turn": by_turn,
    "id": by_id,
    "policy": by_policy,
    "field": by_field,
    "at": by_time,
}


def joined(terms: Iterable[tuple[str, object]]) -> str:
    """Write a search line of keys and values; those without a value are left out."""
    return " ".join(f"{key}:{value}" for key, value in terms if value)
