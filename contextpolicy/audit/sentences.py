"""Describes an audit event in one sentence. Ids are shown on the event's own page."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Group, User
from django.utils.translation import gettext

from contextpolicy.audit.phrases import PHRASES, TRIED
from contextpolicy.models import AuditEvent, ContextPolicy
from contextpolicy.wording import join_items

LONGEST = 240
# Short names for fields of a policy, where the field name is not the best one.
FIELDS = {"window_size": "window", "reserve_tokens": "reserve", "token_budget": "budget"}
# Details that are ids, hashes or counts for machines.
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
        "stored",
        "stored_digest",
        "summaries",
        "team",
        "turn",
    }
)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{40,}")
_PERSON = re.compile(r"user:([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the people, groups and policies that some events mention."""

    people: Mapping[int, str] = field(default_factory=dict)
    groups: Mapping[int, str] = field(default_factory=dict)
    policies: Mapping[str, str] = field(default_factory=dict)

    def actor(self, actor: str) -> str:
        """Return the actor's name, then the stored id; just the id if the name is unknown."""
        found = _PERSON.fullmatch(actor)
        name = self.people.get(int(found[1])) if found else None
        return f"{name} ({actor})" if name else actor

    def person(self, pk: object) -> str:
        """Return a user's name, or the id if the user was removed."""
        return (self.people.get(pk) if isinstance(pk, int) else None) or gettext(
            "user {id}"
        ).format(id=pk)

    def group(self, pk: object) -> str:
        """Return a group's name, or the id if the group was removed."""
        return (self.groups.get(pk) if isinstance(pk, int) else None) or gettext(
            "group {id}"
        ).format(id=pk)

    def policy(self, slug: object) -> str:
        return gettext("“{name}”").format(name=self.policies.get(str(slug), str(slug)))


def load_event_names(events: Sequence[AuditEvent]) -> Names:
    """Load the names that these events mention, in three queries."""
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


def describe_event(event: AuditEvent, *, names: Names) -> str:
    data = dict(event.data)
    opening = str(PHRASES.get(event.type, event.type))
    if event.type.startswith("policy."):
        opening = describe_policy_event(event.type, data, names=names)
    elif event.type.startswith(("radius.", "evaluation.")):
        opening = describe_evaluation_event(event.type, opening, data, names=names)
    said = opening
    if details := "; ".join(describe_event_details(data, names=names)):
        # No sentence has two colons.
        has_colon = ": " in opening or "：" in opening
        both = gettext("{event}; {details}") if has_colon else gettext("{event}: {details}")
        said = both.format(event=opening, details=details)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def describe_policy_event(kind: str, data: dict[str, Any], *, names: Names) -> str:
    """Describe policy, version and target. Removes the used keys from `data`."""
    name = names.policy(data.pop("policy", "?"))
    if kind == "policy.version_created":
        return describe_version_event(name, data)
    if kind == "policy.version_activated":
        words = gettext("Policy {policy} v{number} published")
        reason = data.pop("emergency", "")
        if reason:
            words = gettext("Policy {policy} v{number} published in an emergency (“{reason}”)")
        return words.format(
            policy=name, number=data.pop("version", 0), reason=format_short_value(reason)
        )
    if kind in {"policy.assigned", "policy.unassigned"}:
        previous = data.pop("previous", None)
        words = describe_assignment_event(
            is_assigned=kind == "policy.assigned", replaces=bool(previous)
        )
        target = describe_policy_target(data, names=names)
        return words.format(policy=name, target=target, previous=names.policy(previous))
    if kind == "policy.created":
        return gettext("Policy {policy} created").format(policy=name)
    return gettext("Policy {policy} changed").format(policy=name)


def describe_version_event(name: str, data: dict[str, Any]) -> str:
    """Describe a new version of a policy. Removes the used keys from `data`."""
    number = data.pop("version", 0)
    if data.pop("waits", False):
        data.pop("draft")
        words = gettext("Policy {policy} v{number} requires approval by a second person")
    elif data.pop("uncounted", False):
        data.pop("draft")
        words = gettext("Policy {policy} v{number} requires a count of affected chats")
    elif data.pop("draft", False):
        words = gettext("Draft v{number} of policy {policy}")
    elif isinstance(number, int) and number > 1:
        words = gettext("Policy {policy} v{before} → v{number}")
        return words.format(policy=name, before=number - 1, number=number)
    else:
        words = gettext("Policy {policy} v{number} published")
    return words.format(policy=name, number=number)


def describe_assignment_event(*, is_assigned: bool, replaces: bool) -> str:
    """Return the sentence about an assignment that was added or removed."""
    if is_assigned and replaces:
        return gettext("Policy {policy} assigned to {target}, instead of {previous}")
    if is_assigned:
        return gettext("Policy {policy} assigned to {target}")
    if replaces:
        return gettext("Assignment of policy {policy} to {target} removed, replaced by {previous}")
    return gettext("Assignment of policy {policy} to {target} removed")


def describe_evaluation_event(
    kind: str, opening: str, data: dict[str, Any], *, names: Names
) -> str:
    """Describe a count or an evaluation: its policy, and the results if it has ended.

    Removes the used keys from `data`. `opening` is the beginning of the sentence, without a name.
    """
    name, number = names.policy(data.pop("policy", "?")), data.pop("version", None)
    data.pop("base", None)
    if kind in TRIED and (number is not None or kind.startswith("radius.")):
        opening = str(TRIED[kind]).format(policy=name, number=number)
    if (all_of_them := data.pop("in_use", None)) is not None:
        opening = gettext(
            "{event}: {judged:,} of {all:,} chats evaluated, {changed:,} would change, "
            "{would_refuse:,} would be refused"
        ).format(
            event=opening,
            all=all_of_them,
            **{key: data.pop(key, 0) for key in ("judged", "changed", "would_refuse")},
        )
    return opening


def describe_policy_target(data: dict[str, Any], *, names: Names) -> str:
    level = data.pop("level", "")
    if level == "group":
        return gettext("the group {group}").format(group=names.group(data.pop("group", None)))
    if level == "user":
        return names.person(data.pop("user", None))
    places = {"instance": gettext("everyone"), "chat": gettext("this chat")}
    return places.get(level, str(level))


def describe_event_details(data: Mapping[str, Any], *, names: Names) -> Iterator[str]:
    """Yield each remaining detail in words; a change as old → new.

    Empty values are omitted, and so are ids, hashes and counts for machines.
    """
    if data.keys() >= {"from", "to"}:
        yield f"{format_short_value(data['from'])} → {format_short_value(data['to'])}"
    for name, value in data.items():
        if name in {"from", "to", *UNSAID} or value in (None, "", [], {}):
            continue
        if name == "changes" and isinstance(value, dict):
            yield from describe_event_details(value, names=names)
        elif said := format_event_detail(name, value, names=names):
            yield f"{FIELDS.get(name, name.replace('_', ' '))} {said}"


def format_event_detail(name: str, value: object, *, names: Names) -> str:
    """Format the value of one detail; empty if there is nothing to show."""
    if name in {"user", "owner"}:
        return names.person(value)
    if name == "group":
        return names.group(value)
    if name == "policy":
        return names.policy(value)
    if isinstance(value, dict) and value.keys() <= {"from", "to"}:
        old, new = format_short_value(value.get("from")), format_short_value(value.get("to"))
        return f"{old} → {new}" if old != new else ""
    return format_short_value(value)


def format_short_value(value: object) -> str:
    """Format a value on one line. Ids and hashes are left out; an empty value is "not set"."""
    if value in (None, "", [], {}):
        return gettext("not set")
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return "" if _ID.fullmatch(value) else value
    if isinstance(value, list):
        return join_items(filter(None, map(_plain, value)))
    if isinstance(value, dict):
        return _pairs(value.items())
    return str(value)


def _pairs(pairs: Iterable[tuple[str, object]]) -> str:
    found = ((key.replace("_", " "), _plain(value)) for key, value in pairs if key != "sha256")
    return join_items(f"{key} {value}" for key, value in found if value)


def _plain(value: object) -> str:
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return format_short_value(value)
