"""Reads, edits and resets a chat's state, for its owner.

A change applies from the next turn on, and later extractions start from it.
"""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Branch, Chat, ChatState, Turn
from chats.prompt import model_choice
from chats.record import states
from chats.record.states import Kept, StateChanged
from contextpolicy import ledger
from contextpolicy.engine.strategies.entity_state import (
    LARGEST_STATE,
    find_state_faults,
    measure_state_size,
)


class NoStateKept(Refusal):
    """The chat's policy does not maintain a state, so none can be read or changed."""

    code = "no_state"
    status = 409
    sentence = gettext_noop(
        "The policy {policy} stores no state in this chat. Ask your administrator to change "
        "the policy."
    )


class StateInvalid(Refusal):
    """The values do not match the state's schema. Nothing was saved."""

    code = "state_invalid"
    status = 422
    sentence = gettext_noop(
        "The values do not match the state’s schema: {fault}. Nothing was saved."
    )
    param = "values"


class StateTooLarge(Refusal):
    """The state would exceed 16,384 bytes of JSON. Shorten a value."""

    code = "too_long"
    status = 422
    sentence = gettext_noop(
        "The state would be {size:,} bytes long. The limit is {limit:,}. Shorten a value."
    )
    param = "values"


class NoSuchStateVersion(Refusal):
    """The state has no such version on this branch, or the version is no longer listed."""

    code = "no_such_version"
    status = 404
    sentence = gettext_noop(
        "The state has no version {version:,}. Choose a version from its history."
    )
    param = "to"


@dataclass(frozen=True, slots=True)
class ChatKept:
    """A branch's state, and the name of the policy that defines it."""

    policy: str
    kept: Kept
    branch: Branch


def load_chat_state(*, chat: Chat) -> ChatKept:
    """Return the state of the chat's active branch.

    Raises `NoStateKept`, and the refusals of `model_choice.choose_chat_model`.
    """
    choice = model_choice.choose_chat_model(chat=chat)
    branch = Branch.objects.select_related("parent").get(pk=cast(uuid.UUID, chat.active_branch_id))
    kept = states.load_stored_state(branch, values=choice.values)
    if kept is None:
        raise NoStateKept(policy=choice.effective.label)
    return ChatKept(policy=choice.effective.label, kept=kept, branch=branch)


@transaction.atomic
def edit_state(
    *,
    chat: Chat,
    user: AbstractBaseUser,
    version: int,
    values: Mapping[str, Any],
    removed: Collection[str] = (),
    now: datetime,
) -> ChatKept:
    """Set and remove fields of the state. Other fields stay unchanged.

    Raises `StateChanged` unless `version` is the active one, `StateInvalid`, `StateTooLarge`, and
    the refusals of `load_chat_state`.
    """
    found = load_chat_state(chat=chat)
    check_state_version(found, version)
    old = found.kept.values
    new = {name: value for name, value in {**old, **values}.items() if name not in removed}
    check_values(new, schema=found.kept.schema)
    if new == old:
        return found
    return save_state_version(found, user=user, kind=ChatState.Kind.CORRECTED, values=new, now=now)


@transaction.atomic
def reset_state(*, chat: Chat, user: AbstractBaseUser, version: int, now: datetime) -> ChatKept:
    """Empty the state. Raises `StateChanged` and the refusals of `load_chat_state`."""
    found = load_chat_state(chat=chat)
    check_state_version(found, version)
    if not found.kept.values:
        return found
    return save_state_version(found, user=user, kind=ChatState.Kind.RESET, values={}, now=now)


@transaction.atomic
def restore_state(
    *, chat: Chat, user: AbstractBaseUser, version: int, to: int, now: datetime
) -> ChatKept:
    """Restore the values of an older version, as a new version.

    `version` is the active version that the user has seen. Raises `StateChanged`,
    `NoSuchStateVersion`, `StateInvalid` if the schema has changed, and the refusals of
    `load_chat_state`.
    """
    found = load_chat_state(chat=chat)
    check_state_version(found, version)
    known = states.list_state_versions(found.branch)
    old = next((one.row for one in known if one.row.version == to), None)
    if old is None:
        raise NoSuchStateVersion(version=to)
    check_values(old.values, schema=found.kept.schema)
    if old.values == found.kept.values:
        return found
    return save_state_version(
        found, user=user, kind=ChatState.Kind.RESTORED, values=old.values, now=now
    )


def list_state_history(*, chat: Chat) -> tuple[ChatKept, list[states.Version]]:
    """Return the state and its versions, newest first. Raises the refusals of `load_chat_state`."""
    found = load_chat_state(chat=chat)
    return found, states.list_state_versions(found.branch)


def check_state_version(found: ChatKept, version: int) -> None:
    """Raise `StateChanged` unless the user has seen the active version."""
    if version != found.kept.version:
        raise StateChanged(version=found.kept.version)


def check_values(values: Mapping[str, Any], *, schema: Mapping[str, Any]) -> None:
    """Raise `StateTooLarge` or `StateInvalid` for invalid values."""
    size = measure_state_size(values)
    if size > LARGEST_STATE:
        raise StateTooLarge(size=size, limit=LARGEST_STATE)
    if faults := find_state_faults(values, schema=schema):
        raise StateInvalid(fault=faults[0])


def save_state_version(
    found: ChatKept, *, user: AbstractBaseUser, kind: str, values: Mapping[str, Any], now: datetime
) -> ChatKept:
    """Write the next version and record it in the ledger.

    The ledger gets field names that the policy declares, never values.
    """
    before = found.kept.values
    row = states.append_state_version(
        branch_id=found.branch.pk,
        base=found.kept.row,
        kind=kind,
        values=values,
        to_seq=find_edit_position(found),
        now=now,
        corrected_by_id=user.pk,
    )
    touched = [
        name
        for name in found.kept.declared
        if (name in before, before.get(name)) != (name in values, values.get(name))
    ]
    ledger.record_event(
        f"state.{kind}",
        actor=f"user:{user.pk}",
        now=now,
        chat_id=found.branch.chat_id,
        data={"state": str(row.pk), "version": row.version, "fields": touched},
    )
    return ChatKept(
        policy=found.policy, kept=Kept(schema=found.kept.schema, row=row), branch=found.branch
    )


def find_edit_position(found: ChatKept) -> int:
    """Return the seq up to which an edit applies: all but messages that a running turn may read.

    An extraction that read them again could undo the user's edit.
    """
    running = Turn.objects.filter(branch=found.branch, status=Turn.Status.RUNNING)
    if running.exists():
        return found.kept.row.to_seq if found.kept.row else 0
    return found.branch.last_seq
