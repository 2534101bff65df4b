"""Embeds questions during retrieval, and decides whether a chat allows it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from chats.compaction.embedding_spaces import NOT_INSTALLED, WRONG, get_space_embedder
from chats.compaction.people import summary_permissions
from chats.ground.breakers import LatenessBreaker
from chats.ground.refusals import Refusal
from chats.memory.search import vectors
from chats.models import (
    Chat,
    Folder,
)
from chats.prompt import model_choice
from chats.providers.base import ProviderError, Timeouts
from chats.providers.embedders import Embedder

CALL_SECONDS = 30.0


# Reasons for a keyword search only; `chats.web.reasons` has a sentence for each.
NOTES = ("late", "down", "breaker", "provider", WRONG, NOT_INSTALLED)


# Counts questions that were embedded too late or not at all.
BREAKER = LatenessBreaker()


@dataclass(frozen=True, slots=True)
class QuestionEmbedder:
    """The index that serves questions, and the client that embeds them."""

    space_id: int
    dimensions: int
    embedder: Embedder
    prefix: str
    provider: str


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """A question's vector, or the reason why there is none, as a code in `note`."""

    space_id: int = 0
    vector: Sequence[float] = ()
    note: str = ""


def build_call_timeouts(seconds: float) -> Timeouts:
    return replace(Timeouts(**settings.PROVIDER_TIMEOUTS), total=seconds)


def can_embed_chat(chat: Chat, *, provider: str) -> bool:
    """Return True if a model of the provider may receive the text of a chat."""
    return chat.deleted_at is None and get_embedding_permission(chat, provider=provider) is True


def get_embedding_permission(chat: Chat, *, provider: str) -> bool | None:
    """Return True if a provider may receive the chat's text, and False if it may not.

    None: unknown, because no model can reply in the chat or its policies conflict.
    """
    if chat.temporary or chat.without_memory:
        return False
    if chat.folder_id and Folder.objects.filter(pk=chat.folder_id, without_memory=True).exists():
        return False
    try:
        choice = model_choice.choose_chat_model(chat=chat)
    except Refusal:
        return None
    is_open = summary_permissions.get_archive_refusal(choice) is None
    return is_open and is_provider_allowed(choice.values.memory_providers, provider=provider)


def is_provider_allowed(names: Sequence[str] | None, *, provider: str) -> bool:
    """Return True if a policy's list of providers includes this one, or there is no list."""
    return names is None or provider in names


def get_question_embedder() -> QuestionEmbedder | None:
    """Return the client that embeds questions; None if semantic search is off.

    Raises `Unreachable`.
    """
    space = vectors.get_serving_space()
    if space is None:
        return None
    embedder = get_space_embedder(space)
    name, provider = (space.model.name, space.model.provider) if space.model else ("", "")
    return QuestionEmbedder(
        space.pk, space.dimensions or 0, embedder, vectors.get_embedding_prefixes(name)[0], provider
    )


async def embed_question_text(text: str, *, by: QuestionEmbedder, seconds: float) -> QuestionVector:
    """Return the vector of a question within `seconds`, or the reason why there is none.

    Only the last chunk of a long text is embedded.
    """
    if BREAKER.is_open():
        return QuestionVector(note="breaker")
    part = (vectors.split_into_chunks(text) or [""])[-1]
    try:
        async with asyncio.timeout(seconds):
            (vector,) = await by.embedder.vectors(
                [by.prefix + part], timeouts=build_call_timeouts(seconds)
            )
    except TimeoutError:
        BREAKER.missed()
        return QuestionVector(note="late")
    except ProviderError as error:
        BREAKER.missed()
        return QuestionVector(note="late" if error.code == "provider_timeout" else "down")
    BREAKER.came()
    if len(vector) != by.dimensions:
        return QuestionVector(note=WRONG)
    return QuestionVector(by.space_id, vector)
