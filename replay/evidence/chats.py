"""Imports a conversation into a chat and composes prompts for questions about it, in this process.

Importer, index, search, composer, window and summaries are the product's; no server or network is
used. Everything runs in the caller's transaction.
"""

import io
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.db import transaction

from chats.actions import lifecycle
from chats.compaction.indexing import update_chat_index
from chats.compaction.maintain import maintain_chat_context
from chats.exchange import chat_writer, importing
from chats.exchange.drafts import ChatDraft
from chats.ground.live import Frame
from chats.models import Chat, Compaction, ProviderAccount, SearchPlace, Turn
from chats.prompt.built_prompt import Prompt
from chats.providers.base import Finished, Provider, ProviderRequest, TextDelta
from chats.providers.registry import ProviderAccountValue as Account
from chats.turns.attempt import TurnAttempt, run_opened_turn
from chats.turns.opening import open_turn
from chats.turns.start import start_turn
from chats.turns.step_prompt import compose_step_prompt
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.models import ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.presets import SYSTEM, Preset
from contextpolicy.publish import create_policy
from replay.evidence.conversations import EvidenceQuestion, QuestionedConversation, SaidMessage

Result = TypeVar("Result")
RESERVE = 1_000
# A larger summary would leave no room for anything else.
SMALL_LIMIT, SMALL_SUMMARY = 4_000, 1_000
# Time from the last message to the question.
PAUSE = timedelta(hours=1)
# The maximum number of consecutive summaries after an import.
MOST_SUMMARIES = 200
GOODBYE, REPLY = "Thanks, talk to you later.", "You are welcome."


class MeasuringWorker:
    """A worker in the caller's thread, whose model gives a fixed reply."""

    def __init__(self, *, counter: TokenCounter, at: datetime) -> None:
        self._counter = counter
        self.at = at
        self.reply = REPLY
        # The texts of the messages of each prompt that was sent.
        self.prompts: list[list[str]] = []
        self.clock: Callable[[], datetime] = lambda: self.at

    @property
    def counter(self) -> TokenCounter:
        return self._counter

    async def db(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function in the caller's connection."""
        return await sync_to_async(function, thread_sensitive=True)(**arguments)

    async def aside(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function in the caller's connection, as `db` does."""
        return await self.db(function, **arguments)

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        """Discard a frame of the live stream."""

    def provider(self, account: Account) -> Provider:
        """Return a model that gives the reply of this worker."""
        return self

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Any]:
        """Store the prompt, and yield the fixed reply."""
        self.prompts.append([message.content for message in request.messages])
        yield TextDelta(self.reply)
        yield Finished("stop")

    async def aclose(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class MeasuredChat:
    """A chat with an imported conversation, and the seq of each message by the message's id."""

    chat: Chat
    worker: MeasuringWorker
    conversation: QuestionedConversation
    seqs: dict[str, int]

    def ask(self, text: str) -> tuple[Turn, Prompt]:
        """Send a question, and return its turn and prompt. The caller rolls back the changes.

        Raises RuntimeError if the turn cannot be opened, and the refusals of `start_turn` and of
        composing.
        """
        self.worker.at = self.conversation.messages[-1].at + PAUSE
        accepted = start_turn(user=self.chat.owner, chat=self.chat, text=text, now=self.worker.at)
        opening = open_turn(
            turn_id=accepted.turn.pk,
            worker="evidence",
            counter=self.worker.counter,
            now=self.worker.at,
        )
        if opening is None:
            raise RuntimeError(f"turn {accepted.turn.pk} could not be opened")
        attempt = TurnAttempt(opening=opening, worker=self.worker)
        return opening.turn, opening.prompt or async_to_sync(compose_step_prompt)(attempt)

    def say(self, text: str, *, reply: str, at: datetime) -> None:
        """Send a message, store its reply, and run the background work that follows."""
        self.worker.at, self.worker.reply = at, reply
        accepted = start_turn(user=self.chat.owner, chat=self.chat, text=text, now=at)
        async_to_sync(self.complete)(accepted.turn.pk)
        self.catch_up()

    async def complete(self, turn_id: uuid.UUID) -> None:
        opened = self.worker.db(
            open_turn,
            turn_id=turn_id,
            worker="evidence",
            counter=self.worker.counter,
            now=self.worker.at,
        )
        await run_opened_turn(opened=opened, asked_at=time.monotonic(), worker=self.worker, runs={})

    def catch_up(self) -> None:
        """Run the background work of the chat (index and summaries) until nothing changes."""
        index_whole_chat(self.chat.pk)
        known = -1
        for _ in range(MOST_SUMMARIES):
            rows = Compaction.objects.filter(branch__chat=self.chat).count()
            if rows == known:
                break
            known = rows
            maintain_chat_context(
                chat_id=self.chat.pk, counter=self.worker.counter, now=self.worker.at
            )
        index_whole_chat(self.chat.pk)
        self.chat.refresh_from_db()


def set_up_model() -> None:
    """Create the model for the chats; it is never called."""
    ProviderAccount.objects.get_or_create(slug="demo", defaults={"name": "Demo", "kind": "demo"})
    ModelSpec.objects.get_or_create(
        slug="demo",
        defaults={
            "provider": "demo",
            "name": "demo",
            "context_window": 128_000,
            "is_default": True,
        },
    )


@contextmanager
def roll_back_changes() -> Iterator[None]:
    """Roll back everything that the block writes to the database."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def use_policy(preset: Preset, *, limit: int, now: datetime) -> None:
    """Assign to everyone a copy of a preset with this prompt limit in tokens."""
    values = {
        **preset.values,
        "token_budget": limit + RESERVE,
        "reserve_tokens": RESERVE,
        "input_length_limit": 1_000_000,
    }
    if limit <= SMALL_LIMIT:
        values["summary_max_tokens"] = min(SMALL_SUMMARY, limit // 4)
    elif "summary_max_tokens" in values:
        # A larger summary would reach the size to which the policy compacts.
        values["summary_max_tokens"] = min(values["summary_max_tokens"], limit // 4)
    slug = f"evidence-{preset.slug}-{limit}"
    policy = create_policy(slug=slug, name=slug, values=values, actor=SYSTEM, now=now)
    assign_policy(policy=policy, level="instance", actor=SYSTEM, now=now, is_agreed=True)


def import_chat(conversation: QuestionedConversation, *, counter: TokenCounter) -> MeasuredChat:
    """Import a conversation as a file of UI messages, and index it.

    Raises RuntimeError if the import refuses the conversation.
    """
    now = conversation.messages[-1].at + PAUSE / 2
    owner = create_chat_owner(conversation)
    lines = [
        json.dumps(format_file_message(one), ensure_ascii=False) for one in conversation.messages
    ]
    with ExitStack() as kept:
        source = importing.read_import_file(io.BytesIO("\n".join(lines).encode()), kept=kept)
        (read,) = source.behind(0, (0, 0))
        if not isinstance(read.draft, ChatDraft):
            raise RuntimeError(f"{conversation.name}: {read.draft.reason}")
        made = chat_writer.store_draft(
            read.draft,
            owner=owner,
            form=read.form,
            counter=counter,
            now=now,
            between=lambda: None,
            book=lambda _made: None,
        )
    index_whole_chat(made.chat.pk)
    chat = Chat.objects.select_related("owner", "model", "active_branch").get(pk=made.chat.pk)
    seqs = {one.id: seq for seq, one in enumerate(conversation.messages, start=1)}
    return MeasuredChat(chat, MeasuringWorker(counter=counter, at=now), conversation, seqs)


def index_whole_chat(chat_id: uuid.UUID) -> None:
    """Index a chat completely. Each task works for a fraction of a second."""
    update_chat_index(chat_id=chat_id)
    while SearchPlace.objects.filter(branch__chat=chat_id, due_at__isnull=False).exists():
        update_chat_index(chat_id=chat_id)


def format_file_message(said: SaidMessage) -> dict[str, Any]:
    metadata: dict[str, Any] = {"ts": int(said.at.timestamp() * 1000)}
    if said.name:
        kind = "human" if said.role == "user" else "ai"
        metadata["speaker"] = {"roleId": said.name, "roleName": said.name, "type": kind}
    parts = [{"type": "text", "text": said.text}]
    return {"id": said.id, "role": said.role, "metadata": metadata, "parts": parts}


def trigger_summaries(measured: MeasuredChat) -> None:
    """Send a first message after the import, which triggers the policy's summaries."""
    measured.say(GOODBYE, reply=REPLY, at=measured.conversation.messages[-1].at + PAUSE * 3 / 4)


def ask_questions(measured: MeasuredChat, questions: Sequence[EvidenceQuestion]) -> None:
    """Ask questions one after another, each with its answer as the reply."""
    at = measured.conversation.messages[-1].at + PAUSE
    for number, question in enumerate(questions):
        reply = question.answer or REPLY
        measured.say(question.text, reply=reply, at=at + number * PAUSE / 60)


def play_chat(conversation: QuestionedConversation, *, counter: TokenCounter) -> MeasuredChat:
    """Send the messages of a conversation one after another. Summaries follow as it grows.

    Consecutive messages from one side are sent as one message.
    """
    owner = create_chat_owner(conversation)
    first = conversation.messages[0].at
    chat = lifecycle.create_chat(owner=owner, now=first)
    chat = Chat.objects.select_related("owner", "model", "active_branch").get(pk=chat.pk)
    played = MeasuredChat(chat, MeasuringWorker(counter=counter, at=first), conversation, {})
    for number, (asked, replied) in enumerate(group_rounds(conversation)):
        played.seqs |= {one.id: 2 * number + 1 for one in asked}
        played.seqs |= {one.id: 2 * number + 2 for one in replied}
        played.say(
            join_said_messages(asked),
            reply=join_said_messages(replied),
            at=(asked or replied)[0].at,
        )
    return played


def group_rounds(
    conversation: QuestionedConversation,
) -> Iterator[tuple[Sequence[SaidMessage], Sequence[SaidMessage]]]:
    """Yield consecutive user messages, each time with the replies that follow them."""
    asked: list[SaidMessage] = []
    replied: list[SaidMessage] = []
    for one in conversation.messages:
        if one.role == "user" and replied:
            yield asked, replied
            asked, replied = [], []
        (asked if one.role == "user" else replied).append(one)
    yield asked, replied


def join_said_messages(said: Sequence[SaidMessage]) -> str:
    """Return messages as one string, each with its speaker if the file names one."""
    return "\n".join(f"{one.name}: {one.text}" if one.name else one.text for one in said) or "…"


def create_chat_owner(conversation: QuestionedConversation) -> User:
    """Create the owner of a conversation's chat."""
    return User.objects.create(username=f"{conversation.name}-{uuid.uuid4().hex[:8]}")
