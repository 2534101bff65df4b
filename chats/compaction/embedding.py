"""Embeds the text of chats in the background."""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from chats.compaction.embedding_overview import list_enabled_embedding_models
from chats.compaction.embedding_spaces import WRONG, NotInstalled, Unreachable, get_space_embedder
from chats.compaction.question_embedding import (
    CALL_SECONDS,
    build_call_timeouts,
    can_embed_chat,
    get_embedding_permission,
)
from chats.ground import databases, leases, queue
from chats.ground.jobs import Job
from chats.ground.leases import LeaseLost
from chats.ground.refusals import NotFound
from chats.memory.search import nearest, vectors
from chats.models import (
    Chat,
    SearchPlace,
    SearchText,
    TextVector,
    VectorSpace,
)
from chats.models.search import SEQ_BITS
from chats.prompt import model_choice
from chats.providers.base import ProviderError
from chats.providers.embedders import Embedder

logger = logging.getLogger(__name__)


# Texts per page, and chunks per call.
PAGE = 100


BATCH = 16


# Seconds per task and per call, and until a server is called again.
TASK_SECONDS = 5.0


AGAIN = timedelta(minutes=1)


PASSES = Job(VectorSpace, task=queue.EMBED, length=timedelta(seconds=120))


# Errors about a single text, which the server would return again.
OF_A_TEXT = (
    *("provider_rejected", "content_filtered", "context_overflow"),
    *("provider_timeout", "provider_protocol"),
)


# Servers respond with this status if they cannot encode a vector as JSON, for example if it
# contains NaN.
FAILED_INSIDE = 500


PROBE = "word"


def choose_embedding_model(slug: str, *, anew: bool, actor: str, now: datetime) -> None:
    """Choose the embedding model. An empty `slug` disables semantic search.

    The current model keeps its index, unless a rebuild is requested. Raises `NotFound`,
    `NotInstalled` and `ModelUnavailable`.
    """
    if not slug:
        vectors.choose_vector_space(None, base_url="", actor=actor, now=now)
        return
    model = list_enabled_embedding_models().filter(slug=slug).first()
    if model is None:
        raise NotFound
    if not nearest.is_numpy_installed():
        raise NotInstalled
    account = model_choice.get_model_account(model, to_embed=True)
    vectors.choose_vector_space(model, base_url=account.base_url, actor=actor, now=now, anew=anew)


def continue_embedding_pass(*, now: datetime) -> None:
    """Delete unused vectors, then work on the due pass for a few seconds."""
    give_up = time.monotonic() + TASK_SECONDS
    while vectors.delete_retired_vectors():
        if time.monotonic() > give_up:
            queue.enqueue(queue.EMBED, countdown=1.0)
            return
    for space in vectors.list_active_spaces():
        if claim_space(space) and process_embedding_pages(space, now=now, give_up=give_up):
            queue.enqueue(queue.EMBED)


def claim_space(space: VectorSpace) -> bool:
    """Claim an index. Return False if its pass is not due or another worker has it."""
    if not PASSES.claim(space.pk, Q(due_at__lte=Now()), ~Q(state=VectorSpace.State.RETIRED)):
        return False
    space.refresh_from_db()
    return True


def process_embedding_pages(space: VectorSpace, *, now: datetime, give_up: float) -> bool:
    """Embed messages page by page until the deadline `give_up`, a `time.monotonic()` value.

    After the last page, the index becomes active.
    Returns True if messages remain. False: all are embedded, another worker holds the lease, or the
    provider is unreachable, so that a later pass continues.
    """
    lease = PASSES.get_lease(space)
    try:
        embedder = get_space_embedder(space)
        while time.monotonic() < give_up:
            texts = SearchText.objects.filter(pk__gt=space.cursor, message__isnull=False)
            keys = list(texts.order_by("pk").values_list("pk", flat=True)[:PAGE])
            if not keys:
                lease.release()
                vectors.activate_space(space, now=now)
                return False
            some = texts.filter(pk__lte=keys[-1])
            take_back(space, some)
            embed_texts(space, some, embedder=embedder)
            space.cursor = keys[-1]
            lease.renew(cursor=space.cursor, fault="")
    except LeaseLost:
        return False
    except Unreachable as error:
        lease.release(fault=error.code, fault_at=now, due_at=leases.add_to_now(AGAIN))
        return False
    lease.release()
    return True


def embed_chat(chat_id: uuid.UUID, *, now: datetime) -> None:
    """Embed the new messages of a chat. The next pass retries those that fail."""
    places = SearchPlace.objects.filter(branch__chat=chat_id).values_list("pk", flat=True)
    between = Q(pk__in=[])
    for place in places:
        between |= Q(pk__gte=place << SEQ_BITS, pk__lt=(place + 1) << SEQ_BITS)
    for space in vectors.list_active_spaces():
        try:
            texts = SearchText.objects.filter(between, message__isnull=False)
            # Only the newest messages are embedded here. The pass embeds the rest of a long chat.
            newest = list(texts.order_by("-pk").values_list("pk", flat=True)[:PAGE])
            embed_texts(space, texts.filter(pk__in=newest), embedder=get_space_embedder(space))
        except Unreachable as error:
            reschedule_pass(space, code=error.code, now=now)


def reschedule_pass(space: VectorSpace, *, code: str, now: datetime) -> None:
    """Store the error that left a text without a vector in this index.

    If the index is in use and no pass runs, a pass from the beginning becomes due.
    """
    rows = VectorSpace.objects.filter(pk=space.pk)
    rows.update(fault=code, fault_at=now)
    used = rows.filter(state=VectorSpace.State.SERVING, lease_until=None)
    used.update(cursor=0, due_at=leases.add_to_now(AGAIN))


def embed_texts(space: VectorSpace, texts: QuerySet[SearchText], *, embedder: Embedder) -> None:
    """Embed the given texts that have no vector in the index and whose chats allow it.

    Raises `Unreachable`.
    """
    provider = space.model.provider if space.model else ""
    allowed: dict[uuid.UUID, bool] = {}
    wanted: dict[int, list[str]] = {}
    for text in vectors.list_unembedded_texts(space, texts):
        if text.message is None:
            continue
        chat = text.message.branch.chat
        if chat.pk not in allowed:
            allowed[chat.pk] = can_embed_chat(chat, provider=provider)
        if allowed[chat.pk]:
            wanted[text.pk] = vectors.split_into_chunks(text.message.text)
    prefix = vectors.get_embedding_prefixes(space.model.name)[1] if space.model else ""
    waiting: dict[int, list[str]] = {}
    for key, parts in wanted.items():
        waiting[key] = parts
        if sum(map(len, waiting.values())) >= BATCH:
            embed_some(space, waiting, embedder=embedder, prefix=prefix)
            waiting = {}
    embed_some(space, waiting, embedder=embedder, prefix=prefix)


def take_back(space: VectorSpace, texts: QuerySet[SearchText]) -> None:
    """Delete vectors of texts that the model may no longer receive.

    The permission ends when the policy, the folder or the owner's settings change. Each pass
    applies the changes since the previous pass.
    """
    provider = space.model.provider if space.model else ""
    embedded = TextVector.objects.filter(space=space, text__in=texts.values("pk"))
    for chat in Chat.objects.filter(pk__in=embedded.values("message__branch__chat")):
        if get_embedding_permission(chat, provider=provider) is False:
            vectors.delete_space_vectors(space, texts.filter(message__branch__chat=chat))


def embed_some(
    space: VectorSpace, texts: Mapping[int, Sequence[str]], *, embedder: Embedder, prefix: str
) -> None:
    """Embed one batch of texts and store the vectors. Raises `Unreachable`."""
    if not texts:
        return
    databases.give_back()
    made: dict[int, Sequence[bytes] | None] = {}
    whole = [part for parts in texts.values() for part in parts]
    try:
        found = iter(asyncio.run(embed_chunks(embedder, whole, prefix=prefix)) if whole else ())
        made = {key: [next(found) for _ in parts] for key, parts in texts.items()}
    except ProviderError as error:
        if not is_of_a_text(error):
            raise Unreachable(error.code) from error
        if error.code == "provider_protocol" or error.status == FAILED_INSIDE:
            # Either one text fails, or the server has no embeddings API, or none that works.
            measure_vector_bytes(embedder)
        made = {
            key: embed_chunks_separately(parts, embedder, prefix=prefix)
            for key, parts in texts.items()
        }
        if None in made.values():
            measure_vector_bytes(embedder)
    try:
        vectors.store_vectors(space, made)
    except vectors.OtherDimensions:
        # Either one text has an odd vector, or the model now returns another length.
        size = measure_vector_bytes(embedder)
        usual = {
            key: rows if all(len(row) == size for row in rows or ()) else None
            for key, rows in made.items()
        }
        try:
            vectors.store_vectors(space, usual)
        except vectors.OtherDimensions:
            raise Unreachable(WRONG) from None


def is_of_a_text(error: ProviderError) -> bool:
    """Return True if the error may be caused by a single text rather than by the server."""
    return error.code in OF_A_TEXT or error.status == FAILED_INSIDE


async def embed_chunks(embedder: Embedder, texts: Sequence[str], *, prefix: str) -> list[bytes]:
    """Return the packed vectors of chunks. Raises ProviderError."""
    found: list[bytes] = []
    for start in range(0, len(texts), BATCH):
        some = [prefix + text for text in texts[start : start + BATCH]]
        made = await embedder.vectors(some, timeouts=build_call_timeouts(CALL_SECONDS))
        found += [nearest.pack_vector(vector) for vector in made]
    return found


def embed_chunks_separately(
    parts: Sequence[str], embedder: Embedder, *, prefix: str
) -> Sequence[bytes] | None:
    """Embed the chunks of one text separately, and halve chunks that are too long.

    Returns None if the model embeds none of them. Raises `Unreachable`.
    """
    found: list[bytes] = []
    waiting = list(parts)
    while waiting:
        part = waiting.pop(0)
        try:
            found += asyncio.run(embed_chunks(embedder, [part], prefix=prefix))
        except ProviderError as error:
            halves = vectors.split_in_half(part)
            if not is_of_a_text(error) or (not halves and error.code == "provider_timeout"):
                raise Unreachable(error.code) from error
            waiting = [*halves, *waiting]
    return found or (None if parts else [])


def measure_vector_bytes(embedder: Embedder) -> int:
    """Return the byte size of a packed vector, by embedding a short word.

    Raises `Unreachable` if the model rejects even this word, which shows that no single text is the
    cause.
    """
    try:
        return len(asyncio.run(embed_chunks(embedder, [PROBE], prefix=""))[0])
    except ProviderError as error:
        raise Unreachable(error.code) from error


def enqueue_due() -> int:
    """Enqueue the task if a pass is due or an index is to be deleted. Returns 1 or 0."""
    due = PASSES.select_free_rows().filter(due_at__lte=Now())
    retired = VectorSpace.objects.filter(state=VectorSpace.State.RETIRED)
    if not due.exists() and not retired.exists():
        return 0
    queue.enqueue(queue.EMBED)
    return 1
