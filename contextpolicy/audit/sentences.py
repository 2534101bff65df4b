"""Says in one sentence what a row of the ledger tells; ids stand on the row's own page."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Group, User

from contextpolicy.audit.phrases import PHRASES
from contextpolicy.models import AuditEvent, ContextPolicy

LONGEST = 240
# What else than its name says best what a field of a policy is.
FIELDS = {"window_size": "window", "reserve_tokens": "reserve", "token_budget": "budget"}
# Details that are ids, hashes or counts for a machine.
UNSAID = frozenset(
    {
        "attempt",
        "branch",
        "calls",
        "commitment",
        "compaction",
        "export",
        "key",
        "message",
        "parent",
        "receipt",
        "reply",
        "round",
        "source_digest",
        "state",
        "step",
        "summaries",
        "team",
        "turn",
    }
)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{40,}")
_PERSON = re.compile(r"user:([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of people, groups and policies that some rows speak of."""

    people: Mapping[int, str] = field(default_factory=dict)
    groups: Mapping[int, str] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)

    def actor(self, actor: str) -> str:
        """Name who acted, beside the id that the ledger holds."""
        found = _PERSON.fullmatch(actor)
        name = self.people.get(int(found[1])) if found else None
        return f"{name} ({actor})" if name else actor

    def person(self, pk: object) -> str:
        """Name a person; their id if they are gone."""
        return (self.people.get(pk) if isinstance(pk, int) else None) or f"user {pk}"

    def group(self, pk: object) -> str:
        """Name a group; its id if it is gone."""
        return (self.groups.get(pk) if isinstance(pk, int) else None) or f"group {pk}"

    def policy(self, slug: object) -> str:
        """Name a policy in quotes."""
        return f"“{self.policies.get(str(slug), str(slug))}”"


def names_in(events: Sequence[AuditEvent]) -> Names:
    """Return the names that these rows need, with three queries for all."""
    people, groups, policies = set[int](), set[int](), set[str]()
    for event in events:
        found = _PERSON.fullmatch(event.actor)
        people |= {int(found[1])} if found else set()
        people |= {pk for pk in map(event.data.get, ("user", "owner")) if isinstance(pk, int)}
        groups |= {pk for pk in map(event.data.get, ("group",)) if isinstance(pk, int)}
        policies |= {str(event.data[key]) for key in ("policy", "previous") if event.data.get(key)}
    users = User.objects.filter(pk__in=people).values_list("pk", "username")
    return Names(
        dict(users),
        dict(Group.objects.filter(pk__in=groups).values_list("pk", "name")),
        dict(ContextPolicy.objects.filter(slug__in=policies).values_list("slug", "name")),
    )


def sentence(event: AuditEvent, *, names: Names) -> str:
    """Say what happened."""
    data = dict(event.data)
    opening = PHRASES.get(event.type, event.type)
    if event.type.startswith("policy."):
        opening = policy_words(event.type, data, names=names)
    elif event.type.startswith(("radius.", "evaluation.")):
        opening = tried_words(opening, data, names=names)
    details = "; ".join(told(data, names=names))
    said = f"{opening}{'; ' if ': ' in opening else ': '}{details}" if details else opening
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def policy_words(kind: str, data: dict[str, Any], *, names: Names) -> str:
    """Say which policy, which version and where; takes out of the details what it has said."""
    name = names.policy(data.pop("policy", "?"))
    if kind == "policy.version_created":
        number = data.pop("version", 0)
        if data.pop("waits", False):
            data.pop("draft")
            return f"Policy {name} v{number} waits for a second person"
        if data.pop("uncounted", False):
            data.pop("draft")
            return f"Policy {name} v{number} waits until it is counted whom it changes"
        if data.pop("draft", False):
            return f"Draft v{number} of policy {name}"
        before = f"v{number - 1} → " if isinstance(number, int) and number > 1 else ""
        return f"Policy {name} {before}v{number}"
    if kind == "policy.version_activated":
        reason = data.pop("emergency", "")
        alone = f" by its author alone, as an emergency (“{short(reason)}”)" if reason else ""
        return f"Policy {name} v{data.pop('version', 0)} put in force{alone}"
    if kind in {"policy.assigned", "policy.unassigned"}:
        previous = data.pop("previous", None)
        done = "assigned to" if kind == "policy.assigned" else "no longer assigned to"
        instead = f", instead of {names.policy(previous)}" if previous else ""
        return f"Policy {name} {done} {target_words(data, names=names)}{instead}"
    return f"Policy {name} {'created' if kind == 'policy.created' else 'changed'}"


def tried_words(opening: str, data: dict[str, Any], *, names: Names) -> str:
    """Say which policy was tried on chats, and how many were judged; takes that out of the details.

    The opening speaks of “a policy”, or of a draft.
    """
    name, number = names.policy(data.pop("policy", "?")), data.pop("version", None)
    data.pop("base", None)
    opening = opening.replace("a policy", f"policy {name}").replace("a draft", "draft")
    if number is not None:
        opening = opening.replace("draft", f"draft v{number} of policy {name}")
    if (all_of_them := data.pop("in_use", None)) is not None:
        counted = {key: data.pop(key, 0) for key in ("judged", "changed", "would_refuse")}
        opening += (
            f": {counted['judged']:,} of {all_of_them:,} judged, {counted['changed']:,} would "
            f"change, {counted['would_refuse']:,} would refuse"
        )
    return opening


def target_words(data: dict[str, Any], *, names: Names) -> str:
    """Say where a policy applies."""
    level = data.pop("level", "")
    if level == "group":
        return f"the group {names.group(data.pop('group', None))}"
    if level == "user":
        return names.person(data.pop("user", None))
    return {"instance": "everybody", "chat": "this chat"}.get(level, str(level))


def told(data: Mapping[str, Any], *, names: Names) -> Iterator[str]:
    """Yield each detail in words: a change as old → new. What is empty is left out."""
    if data.keys() >= {"from", "to"}:
        yield f"{short(data['from'])} → {short(data['to'])}"
    for name, value in data.items():
        if name in {"from", "to", *UNSAID} or value in (None, "", [], {}):
            continue
        if name == "changes" and isinstance(value, dict):
            yield from told(value, names=names)
        elif said := value_words(name, value, names=names):
            yield f"{FIELDS.get(name, name.replace('_', ' '))} {said}"


def value_words(name: str, value: object, *, names: Names) -> str:
    """Write the value of one detail; empty where there is nothing to say."""
    if name in {"user", "owner"}:
        return names.person(value)
    if name == "group":
        return names.group(value)
    if name == "policy":
        return names.policy(value)
    if isinstance(value, dict) and value.keys() <= {"from", "to"}:
        old, new = short(value.get("from")), short(value.get("to"))
        return f"{old} → {new}" if old != new else ""
    return short(value)


def short(value: object) -> str:
    """Write a value; ids and hashes are left to the row's page."""
    if value in (None, "", [], {}):
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return "" if _ID.fullmatch(value) else value
    if isinstance(value, list):
        return ", ".join(filter(None, map(_plain, value)))
    if isinstance(value, dict):
        return _pairs(value.items())
    return str(value)


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    found = ((key.replace("_", " "), _plain(value)) for key, value in pairs if key != "sha256")
    return ", ".join(f"{key} {value}" for key, value in found if value)


def _plain(value: object) -> str:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return short(value)
