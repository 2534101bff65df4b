"""A chat's own system text, written by its owner if the policy allows it.

The policy's `chat_system` defines how the text is combined with the policy's text
(`engine.compose.system_text`). With the value `layout`, the policy's layout decides.
The ledger records the change and the length, never the text.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext_noop

from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.ground.texts import UNSTORABLE
from chats.models import Chat, KeptText
from chats.prompt import model_choice, prompt_facts
from chats.record import kept_texts
from chats.record.locking import lock_chat_for_writing
from contextpolicy import ledger
from contextpolicy.engine.compose.system_text import filter_system_parts
from contextpolicy.engine.messages.transcript import SECTION_JOINT
from contextpolicy.engine.policy.policy import PolicyValues, find_value_problems
from contextpolicy.linter.errors import LONGEST_TEXT


class SystemTextLocked(Refusal):
    """The policy does not allow chats to have their own system text."""

    code = "system_text_locked"
    status = 403
    sentence = gettext_noop(
        "The policy {policy} does not allow chats to have their own system text. Ask your "
        "administrator."
    )
    param = "system_text"


class SystemTextTooLong(Refusal):
    """The system text has more than 20,000 characters. It is never truncated."""

    code = "too_long"
    status = 422
    sentence = gettext_noop(
        "This system text has {length:,} characters. The limit is {limit:,}. Shorten it by "
        "{over:,}."
    )
    param = "system_text"


class InvalidSystemText(Refusal):
    """The system text contains NUL or a lone surrogate, which cannot be stored."""

    code = "invalid_character"
    status = 422
    sentence = gettext_noop(
        "The system text contains a character that cannot be stored, at position {position}. "
        "Remove it."
    )
    param = "system_text"


class NoRoomForSystemText(Refusal):
    """With this system text, required parts of a prompt exceed the prompt limit."""

    code = "policy_impossible"
    status = 422
    sentence = gettext_noop(
        "With this text, the policy {policy} does not work in this chat: {reason}"
    )
    param = "system_text"


@dataclass(frozen=True, slots=True)
class SystemTextRule:
    """How a chat's own text is used: the policy, its rule, and the lock.

    `rule`: `append` (after the policy's text), `replace` (instead of it) or `ignore`.
    """

    policy: str
    rule: str
    lock: str


def find_system_text_rule(*, chat: Chat) -> SystemTextRule:
    """Return the rule by which the policy uses the chat's own text.

    Raises the refusals of `model_choice.choose_chat_model`.
    """
    choice = model_choice.choose_chat_model(chat=chat)
    rule = select_combination_rule(choice.values)
    label = choice.effective.label
    lock = SystemTextLocked(policy=label).localized if rule == "ignore" else ""
    return SystemTextRule(policy=label, rule=rule, lock=lock)


def select_combination_rule(values: PolicyValues) -> str:
    """Return the rule for combining a chat's text with the policy's: append, replace or ignore."""
    both = filter_system_parts((("policy", "-"), ("chat", "-")), values=values)
    names = [name for name, _ in both]
    if "chat" not in names:
        return "ignore"
    return "append" if "policy" in names else "replace"


@transaction.atomic
def set_system_text(*, chat: Chat, text: str, actor: str, now: datetime) -> Chat:
    """Set the chat's system text from its next message on. An empty text removes it.

    Removal is always allowed. Raises `SystemTextLocked`, `SystemTextTooLong`, `InvalidSystemText`,
    `NoRoomForSystemText`, and the refusals of `model_choice.choose_chat_model`.
    """
    locked = lock_chat_for_writing(chat.pk)
    before = locked.system_text
    chat.system_text = before if text == before else validate_system_text(chat, text=text)
    if chat.system_text == before:
        return chat
    kept_texts.keep_chat_text(KeptText.Kind.SYSTEM_TEXT, before, chat=chat, actor=actor, now=now)
    chat.save(update_fields=["system_text"])
    ledger.record_event(
        "chat.system_text_changed",
        actor=actor,
        now=now,
        chat_id=chat.pk,
        data={"from_characters": len(before), "to_characters": len(text)},
    )
    # The chat may now exceed the policy's thresholds. The next prompt fits in any case.
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return chat


def validate_system_text(chat: Chat, *, text: str) -> str:
    """Return the text if the chat may use it.

    Raises `SystemTextTooLong`, `InvalidSystemText`, `SystemTextLocked` and
    `NoRoomForSystemText`.
    """
    if not text:
        return text
    if len(text) > LONGEST_TEXT:
        over = len(text) - LONGEST_TEXT
        raise SystemTextTooLong(length=len(text), limit=LONGEST_TEXT, over=over)
    if found := UNSTORABLE.search(text):
        raise InvalidSystemText(position=found.start() + 1)
    choice = model_choice.choose_chat_model(chat=chat)
    if select_combination_rule(choice.values) == "ignore":
        raise SystemTextLocked(policy=choice.effective.label)
    check_system_text_room(text, choice=choice)
    return text


def check_system_text_room(text: str, *, choice: model_choice.ChosenModel) -> None:
    """Raise `NoRoomForSystemText` if the whole system text leaves too little room for the chat."""
    values = choice.values
    parts = prompt_facts.get_base_system_texts(Chat(system_text=text), values=values)
    whole = SECTION_JOINT.join(part for _, part in filter_system_parts(parts, values=values))
    together = replace(values, system_text=whole)
    for problem in find_value_problems(together, model_window=choice.model.window):
        if "system_text" in problem.fields:
            raise NoRoomForSystemText(
                policy=choice.effective.label,
                reason=problem.sentence,
                fields=list(problem.fields),
            )
