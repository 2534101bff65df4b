"""Stores the state of a chat's branches as immutable versions; the newest one is active.

Each new version names the version that it continues. If another version was written in between,
nothing is written.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Branch, ChatState
from chats.record.locking import lock_branch
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import EntityState


class StateChanged(Refusal):
    """The state has a newer version than the one you edited, so nothing was saved.

    Load the newest version and retry.
    """

    code = "state_changed"
    status = 409
    sentence = gettext_noop(
        "The state has changed since you opened it and is now at version {version}. Nothing was "
        "saved. Review it and edit it again."
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """The state that a policy maintains in a chat: its schema, and the active row (None: empty)."""

    schema: Mapping[str, Any]
    row: ChatState | None

    @property
    def values(self) -> dict[str, Any]:
        return dict(self.row.values) if self.row else {}

    @property
    def version(self) -> int:
        return self.row.version if self.row else 0

    @property
    def declared(self) -> list[str]:
        """The fields of the schema, sorted, because not all databases preserve their order."""
        return sorted(self.schema.get("properties", {}))

    @property
    def names(self) -> list[str]:
        """The fields of the schema, then any other fields of the state."""
        return self.declared + sorted(set(self.values) - set(self.declared))


def load_stored_state(branch: Branch, *, values: PolicyValues) -> Kept | None:
    """Return the state that a policy maintains on a branch. None if it maintains none."""
    if values.strategy != EntityState.name:
        return None
    return Kept(schema=values.state_schema, row=find_newest_state(branch))


def find_newest_state(branch: Branch, *, up_to: int | None = None) -> ChatState | None:
    """Return the active state of a branch: its own newest, else its parent's at the fork.

    `up_to` limits the search to versions up to this one. None if there is no state yet.
    """
    rows = ChatState.objects.filter(**({} if up_to is None else {"version__lte": up_to}))
    row = rows.filter(branch=branch).order_by("-version").first()
    fork = branch.fork_seq
    while row is None and branch.parent is not None:
        # An edit of the parent after the fork changes no seq, so the fork's time is compared too.
        seen = rows.filter(
            branch=branch.parent, to_seq__lte=fork, created_at__lte=branch.created_at
        )
        row = seen.order_by("-version").first()
        branch = branch.parent
        fork = min(fork, branch.fork_seq)
    return row


# The maximum number of versions in a history.
MOST_VERSIONS = 100


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A change of one field. `before` and `after` are None where the field was not set.

    `seq` is the message after which it was set; None if unknown.
    """

    name: str
    before: Any
    after: Any
    seq: int | None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a state, and its differences from the previous one."""

    row: ChatState
    changes: tuple[FieldChange, ...]


def list_state_versions(branch: Branch, *, most: int = MOST_VERSIONS) -> list[Version]:
    """Return the versions on a branch, newest first, including its parents' before the fork."""
    rows = list(ChatState.objects.filter(branch=branch).order_by("-version")[: most + 1])
    fork = branch.fork_seq
    while branch.parent is not None and len(rows) <= most:
        # The fork's time is compared too, as in `find_newest_state`.
        seen = ChatState.objects.filter(
            branch=branch.parent, to_seq__lte=fork, created_at__lte=branch.created_at
        )
        seen = seen.filter(version__lt=rows[-1].version) if rows else seen
        rows += seen.order_by("-version")[: most + 1 - len(rows)]
        branch = branch.parent
        fork = min(fork, branch.fork_seq)
    pairs = zip(rows, [*rows[1:], None], strict=True)
    return [Version(row, diff_state_versions(row, before=before)) for row, before in pairs][:most]


def diff_state_versions(row: ChatState, *, before: ChatState | None) -> tuple[FieldChange, ...]:
    """Return the differences from the previous version, by name."""
    old = before.values if before else {}
    return tuple(
        FieldChange(name, old.get(name), row.values.get(name), row.origins.get(name, {}).get("seq"))
        for name in sorted({*old, *row.values})
        if (name in old, old.get(name)) != (name in row.values, row.values.get(name))
    )


def append_state_version(
    *,
    branch_id: uuid.UUID,
    base: ChatState | None,
    kind: str,
    values: Mapping[str, Any],
    to_seq: int,
    now: datetime,
    **fields: Any,
) -> ChatState:
    """Write the next version, in the caller's transaction.

    The values cover the messages up to `to_seq`. Raises `StateChanged` unless `base` is the active
    version.
    """
    branch = lock_branch(branch_id)
    current = find_newest_state(branch)
    version = current.version if current else 0
    if current != base:
        raise StateChanged(version=version)
    return ChatState.objects.create(
        branch=branch,
        version=version + 1,
        kind=kind,
        values=dict(values),
        origins=derive_value_origins(
            base, values, {"seq": to_seq, "by": kind, "at": now.isoformat()}
        ),
        to_seq=to_seq,
        created_at=now,
        **fields,
    )


def derive_value_origins(
    base: ChatState | None, values: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the origin of each value. An unchanged value keeps its origin."""
    old = base.values if base else {}
    known = base.origins if base else {}
    return {
        name: known.get(name, new) if name in old and old[name] == value else dict(new)
        for name, value in values.items()
    }
