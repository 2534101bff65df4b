"""A chat's own system text: what a person lays down for one chat, as far as its policy lets them.

What becomes of it beside the policy's text is the policy's `chat_system` and, where that says so,
its layout (`engine.systemtext.governed`). The ledger says that it changed and how long it is, never
its words.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction

from chats import answering, context, queue
from chats.messages import UNSTORABLE
from chats.models import Chat
from chats.refusals import Refusal
from chats.turns.start import lock_chat
from contextpolicy import ledger
from contextpolicy.engine.policy import PolicyValues, problems
from contextpolicy.engine.systemtext import governed
from contextpolicy.engine.transcript import SECTION_JOINT
from contextpolicy.lint import LONGEST_TEXT


class SystemTextLocked(Refusal):
    """The policy leaves no system text of their own to chats."""

    code = "system_text_locked"
    status = 403
    sentence = (
        "The policy {policy} does not let a chat have a system text of its own."
        " Ask whoever looks after it."
    )
    param = "system_text"


class SystemTextTooLong(Refusal):
    """Longer than any system text may be. Refused, never cut."""

    code = "too_long"
    status = 422
    sentence = (
        "This system text has {length:,} characters; {limit:,} are allowed. Shorten it by {over:,}."
    )
    param = "system_text"


class InvalidSystemText(Refusal):
    """A NUL or half of a surrogate pair: no store keeps them byte for byte."""

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
class Place:
    """What a chat's policy does with a text of its own: the policy, its rule, and why not.

    `rule`: `append` (behind the policy's text), `replace` (in its place) or `ignore`.
    """

    policy: str
    rule: str
    lock: str


def place_of(*, chat: Chat) -> Place:
    """What the chat's policy does with its own text. Raises what `answering.choose` raises."""
    choice = answering.choose(chat=chat)
    rule = rule_of(choice.values)
    label = choice.effective.label
    lock = str(SystemTextLocked(policy=label)) if rule == "ignore" else ""
    return Place(policy=label, rule=rule, lock=lock)


def rule_of(values: PolicyValues) -> str:
    """What becomes of a chat's own text beside the policy's."""
    both = governed((("policy", "-"), ("chat", "-")), values=values)
    names = [name for name, _ in both]
    if "chat" not in names:
        return "ignore"
    return "append" if "policy" in names else "replace"


@transaction.atomic
def write(*, chat: Chat, text: str, actor: str, now: datetime) -> Chat:
    """Give the chat this system text, from its next message on; an empty one takes it away.

    Taking it away is never locked. Raises `SystemTextLocked`, `SystemTextTooLong`,
    `InvalidSystemText`, `NoRoomForSystemText`, and what `answering.choose` raises.
    """
    locked = lock_chat(chat)
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
    """The text, if the chat may have it. Raises the refusals of `write`."""
    if not text:
        return text
    if len(text) > LONGEST_TEXT:
        over = len(text) - LONGEST_TEXT
        raise SystemTextTooLong(length=len(text), limit=LONGEST_TEXT, over=over)
    if found := UNSTORABLE.search(text):
        raise InvalidSystemText(position=found.start() + 1)
    choice = answering.choose(chat=chat)
    if rule_of(choice.values) == "ignore":
        raise SystemTextLocked(policy=choice.effective.label)
    check_room(text, choice=choice)
    return text


def check_room(text: str, *, choice: answering.Choice) -> None:
    """Raise `NoRoomForSystemText` if the whole system text leaves too little for the chat."""
    values = choice.values
    parts = context.system_of(Chat(system_text=text), values=values)
    whole = SECTION_JOINT.join(part for _, part in governed(parts, values=values))
    together = replace(values, system_text=whole)
    for problem in problems(together, model_window=choice.model.window):
        if "system_text" in problem.fields:
            raise NoRoomForSystemText(
                policy=choice.effective.label,
                reason=problem.sentence,
                fields=list(problem.fields),
            )
