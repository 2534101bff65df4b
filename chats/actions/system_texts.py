"""A chat's own system text: written by its owner, as far as the policy allows one.

The policy's `chat_system` decides how it stands beside the policy's text, and where that says so,
its layout (`engine.systemtext.governed`). The ledger records that it changed and how long it is,
never its words.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction

from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.prompt import composition, model_choice
from chats.record.locking import chat_to_write_in
from chats.record.messages import UNSTORABLE
from contextpolicy import ledger
from contextpolicy.engine.policy import PolicyValues, problems
from contextpolicy.engine.systemtext import governed
from contextpolicy.engine.transcript import SECTION_JOINT
from contextpolicy.linter.errors import LONGEST_TEXT


class SystemTextLocked(Refusal):
    """The policy allows chats no system text of their own."""

    code = "system_text_locked"
    status = 403
    sentence = (
        "The policy {policy} does not let a chat have a system text of its own."
        " Ask whoever looks after it."
    )
    param = "system_text"


class SystemTextTooLong(Refusal):
    """The text is longer than any system text may be. Refused, never cut."""

    code = "too_long"
    status = 422
    sentence = (
        "This system text has {length:,} characters; {limit:,} are allowed. Shorten it by {over:,}."
    )
    param = "system_text"


class InvalidSystemText(Refusal):
    """The text has a NUL or half of a surrogate pair: no store keeps them byte for byte."""

    code = "invalid_character"
    status = 422
    sentence = "The system text has a character that cannot be stored, at position {position}."
    param = "system_text"


class NoRoomForSystemText(Refusal):
    """With this text the policy's numbers cannot work in this chat."""

    code = "policy_impossible"
    status = 422
    sentence = "With this text the policy {policy} cannot work here: {reason}"
    param = "system_text"


@dataclass(frozen=True, slots=True)
class SystemTextRule:
    """The place of a chat's own text under its policy: the policy, its rule, and the lock.

    `rule`: `append` (behind the policy's text), `replace` (in its place) or `ignore`.
    """

    policy: str
    rule: str
    lock: str


def place_of(*, chat: Chat) -> SystemTextRule:
    """Say what the chat's policy does with its own text.

    Raises what `model_choice.choose` raises.
    """
    choice = model_choice.choose(chat=chat)
    rule = rule_of(choice.values)
    label = choice.effective.label
    lock = str(SystemTextLocked(policy=label)) if rule == "ignore" else ""
    return SystemTextRule(policy=label, rule=rule, lock=lock)


def rule_of(values: PolicyValues) -> str:
    """Say how a chat's own text stands beside the policy's: append, replace or ignore."""
    both = governed((("policy", "-"), ("chat", "-")), values=values)
    names = [name for name, _ in both]
    if "chat" not in names:
        return "ignore"
    return "append" if "policy" in names else "replace"


@transaction.atomic
def write(*, chat: Chat, text: str, actor: str, now: datetime) -> Chat:
    """Give the chat this system text, from its next message on; an empty one removes it.

    Removing it is never locked. Raises `SystemTextLocked`, `SystemTextTooLong`,
    `InvalidSystemText`, `NoRoomForSystemText`, and what `model_choice.choose` raises.
    """
    locked = chat_to_write_in(chat.pk)
    before = locked.system_text
    chat.system_text = before if text == before else checked(chat, text=text)
    if chat.system_text == before:
        return chat
    chat.save(update_fields=["system_text"])
    ledger.record(
        "chat.system_text_changed",
        actor=actor,
        now=now,
        chat_id=chat.pk,
        data={"from_characters": len(before), "to_characters": len(text)},
    )
    # A longer one may have passed the policy's marks; the next prompt fits in any case.
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return chat


def checked(chat: Chat, *, text: str) -> str:
    """Return the text, if the chat may have it.

    Raises `SystemTextTooLong`, `InvalidSystemText`, `SystemTextLocked` and `NoRoomForSystemText`.
    """
    if not text:
        return text
    if len(text) > LONGEST_TEXT:
        over = len(text) - LONGEST_TEXT
        raise SystemTextTooLong(length=len(text), limit=LONGEST_TEXT, over=over)
    if found := UNSTORABLE.search(text):
        raise InvalidSystemText(position=found.start() + 1)
    choice = model_choice.choose(chat=chat)
    if rule_of(choice.values) == "ignore":
        raise SystemTextLocked(policy=choice.effective.label)
    check_room(text, choice=choice)
    return text


def check_room(text: str, *, choice: model_choice.ChosenModel) -> None:
    """Raise `NoRoomForSystemText` if the whole system text leaves too little for the chat."""
    values = choice.values
    parts = composition.system_of(Chat(system_text=text), values=values)
    whole = SECTION_JOINT.join(part for _, part in governed(parts, values=values))
    together = replace(values, system_text=whole)
    for problem in problems(together, model_window=choice.model.window):
        if "system_text" in problem.fields:
            raise NoRoomForSystemText(
                policy=choice.effective.label,
                reason=problem.sentence,
                fields=list(problem.fields),
            )
