"""Has texts embedded in the background, and questions where a reply looks something up.

Where no operator chose a model nothing happens. A pass walks through all texts, batch by batch, and
keeps its place; what is said later comes with the indexing of its words. A server that is down
stops a pass, which goes on by itself; a text that is too long is tried in halves. Texts of a chat
go to a model only as its policy, its folder and its owner let them.
"""

import asyncio
import logging
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from chats.compaction.people import rights
from chats.ground import databases, leases, queue
from chats.ground.breakers import LatenessBreaker
from chats.ground.refusals import NotFound, Refusal
from chats.memory import nearest, vectors
from chats.models import (
    Chat,
    Folder,
    ProviderAccount,
    SearchPlace,
    SearchText,
    TextVector,
    VectorSpace,
)
from chats.models.search import SEQ_BITS
from chats.prompt import model_choice
from chats.providers import embedders
from chats.providers.base import ProviderError, Timeouts
from chats.providers.embedders import Embedder
from contextpolicy.models import ModelSpec

logger = logging.getLogger(__name__)
# The texts that are looked at together, and the passages of one call.
PAGE = 100
BATCH = 16
# The seconds that one task works, those of one call, and until a server is asked again.
TASK_SECONDS = 5.0
CALL_SECONDS = 30.0
AGAIN = timedelta(minutes=1)
LEASE = timedelta(seconds=120)
# A server that says so of one text would say it again.
OF_A_TEXT = ("provider_rejected", "context_overflow", "provider_timeout", "provider_protocol")
PROBE = "word"
NOT_INSTALLED = "not_installed"
WRONG = "other_dimensions"
# Why words alone decide; each has words in `chats.web.reasons`.
NOTES = ("late", "down", "breaker", "provider", WRONG, NOT_INSTALLED)
# Questions that came too late, or that a server did not answer.
BREAKER = LatenessBreaker()


@dataclass(frozen=True, slots=True)
class QuestionEmbedder:
    """The space in use, and who makes vectors of questions for it."""

    space_id: int
    dimensions: int
    embedder: Embedder
    prefix: str
    provider: str


@dataclass(frozen=True, slots=True)
class QuestionVector:
    """A question as a vector of a space; without one `note` says why words alone decide."""

    space_id: int = 0
    vector: Sequence[float] = ()
    note: str = ""


class Unreachable(Exception):
    """The model of a space cannot be asked now; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class NotInstalled(Refusal):
    """The package that compares vectors is an extra, and not installed."""

    code = "semantic_not_installed"
    status = 409
    sentence = (
        "What compares vectors is not installed here. Whoever runs this installation adds it with"
        " “make semantic” and starts it again."
    )


@dataclass(frozen=True, slots=True)
class SpaceView:
    """A space for operators."""

    space: VectorSpace
    progress: vectors.Progress
    fault: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The search by meaning for operators: what could be chosen, what is, and how far it is."""

    models: Sequence[ModelSpec]
    spaces: Sequence[SpaceView]
    is_installed: bool
    not_installed: str = NotInstalled.sentence

    @property
    def chosen(self) -> str:
        """The model that is in use, or will be; empty without one."""
        newest = self.spaces[-1].space.model if self.spaces else None
        return newest.slug if newest else ""


# What operators are told of a space whose model could not be asked.
FAULTS = {
    NOT_INSTALLED: NotInstalled.sentence,
    WRONG: "The model answers with vectors of another length than before. Build them anew.",
    "provider_unavailable": "Its server could not be reached.",
    "provider_timeout": "Its server did not answer in time.",
    "provider_auth": "Its server refused the key.",
    "provider_protocol": "Its server sent something that is no vector.",
    "provider_rejected": "Its server refuses every text; perhaps it has no model of this name.",
    "provider_rate_limited": "Its server is receiving too many requests.",
}
OTHER_FAULT = "Its server could not be used."


def overview() -> Overview:
    """Return the search by meaning as operators see it."""
    spaces = [
        SpaceView(
            space,
            vectors.progress(space),
            FAULTS.get(space.fault, OTHER_FAULT) if space.fault else "",
        )
        for space in vectors.living()
    ]
    return Overview(list(choosable()), spaces, nearest.is_installed())


def choosable() -> QuerySet[ModelSpec]:
    """Return the models that make vectors of texts."""
    # Anthropic's interface has no embeddings.
    accounts = ProviderAccount.objects.filter(enabled=True, kind="openai").values("slug")
    return ModelSpec.objects.filter(embeds=True, provider__in=accounts)


def choose(slug: str, *, anew: bool, actor: str, now: datetime) -> None:
    """Have texts embedded by a model, or, without one, by none any more.

    Raises `NotFound`, `NotInstalled` and `ModelUnavailable`.
    """
    if not slug:
        vectors.choose(None, base_url="", actor=actor, now=now)
        return
    model = choosable().filter(slug=slug).first()
    if model is None:
        raise NotFound
    if not nearest.is_installed():
        raise NotInstalled
    account = model_choice.account_for(model, to_embed=True)
    vectors.choose(model, base_url=account.base_url, actor=actor, now=now, anew=anew)


def embedder_of(space: VectorSpace) -> Embedder:
    """Return what makes the vectors of a space. Raises `Unreachable`."""
    if not nearest.is_installed():
        raise Unreachable(NOT_INSTALLED)
    if space.model is None:
        raise Unreachable("model_unavailable")
    try:
        account = model_choice.account_for(space.model, to_embed=True)
    except Refusal as refusal:
        raise Unreachable(refusal.code) from refusal
    return embedders.embedder_for(account, model=space.model.name)


def go_on(*, now: datetime) -> None:
    """Delete what nobody uses, and go on with the pass that is due, for some seconds."""
    give_up = time.monotonic() + TASK_SECONDS
    while vectors.delete_retired():
        if time.monotonic() > give_up:
            queue.enqueue(queue.EMBED, countdown=1.0)
            return
    for space in vectors.living():
        if claimed(space) and walk(space, now=now, give_up=give_up):
            queue.enqueue(queue.EMBED)


def claimed(space: VectorSpace) -> bool:
    """Claim a space whose pass is due; False if another has it."""
    free = Q(lease_until=None) | leases.ended()
    token = secrets.token_urlsafe(32)
    rows = VectorSpace.objects.filter(free, pk=space.pk, due_at__lte=Now())
    rows = rows.exclude(state=VectorSpace.State.RETIRED)
    if not rows.update(lease_token=token, lease_until=leases.from_now(LEASE)):
        return False
    space.refresh_from_db()
    return True


def walk(space: VectorSpace, *, now: datetime, give_up: float) -> bool:
    """Do some of a pass; return whether more of it is to be done at once."""
    mine = VectorSpace.objects.filter(pk=space.pk, lease_token=space.lease_token)
    released = {"lease_token": "", "lease_until": None}
    try:
        embedder = embedder_of(space)
        while time.monotonic() < give_up:
            texts = SearchText.objects.filter(pk__gt=space.cursor, message__isnull=False)
            keys = list(texts.order_by("pk").values_list("pk", flat=True)[:PAGE])
            if not keys:
                mine.update(**released)
                vectors.complete(space, now=now)
                return False
            some = texts.filter(pk__lte=keys[-1])
            take_back(space, some)
            embed_texts(space, some, embedder=embedder)
            space.cursor = keys[-1]
            if not mine.update(cursor=space.cursor, lease_until=leases.from_now(LEASE), fault=""):
                return False
    except Unreachable as error:
        mine.update(fault=error.code, fault_at=now, due_at=leases.from_now(AGAIN), **released)
        return False
    mine.update(**released)
    return True


def embed_chat(chat_id: uuid.UUID, *, now: datetime) -> None:
    """Embed what was said in a chat since; what cannot be done now is left to the next pass."""
    places = SearchPlace.objects.filter(branch__chat=chat_id).values_list("pk", flat=True)
    between = Q(pk__in=[])
    for place in places:
        between |= Q(pk__gte=place << SEQ_BITS, pk__lt=(place + 1) << SEQ_BITS)
    for space in vectors.living():
        try:
            texts = SearchText.objects.filter(between, message__isnull=False)
            # The newest: a long chat that has none yet is left to the pass.
            newest = list(texts.order_by("-pk").values_list("pk", flat=True)[:PAGE])
            embed_texts(space, texts.filter(pk__in=newest), embedder=embedder_of(space))
        except Unreachable as error:
            missed(space, code=error.code, now=now)


def missed(space: VectorSpace, *, code: str, now: datetime) -> None:
    """Note that a text has no vector yet: the next pass begins soon, from the beginning."""
    rows = VectorSpace.objects.filter(pk=space.pk)
    rows.update(fault=code, fault_at=now)
    used = rows.filter(state=VectorSpace.State.SERVING, lease_until=None)
    used.update(cursor=0, due_at=leases.from_now(AGAIN))


def embed_texts(space: VectorSpace, texts: QuerySet[SearchText], *, embedder: Embedder) -> None:
    """Embed those of some texts that have no vector in a space. Raises `Unreachable`."""
    provider = space.model.provider if space.model else ""
    allowed: dict[uuid.UUID, bool] = {}
    wanted: dict[int, list[str]] = {}
    for text in vectors.without_vectors(space, texts):
        if text.message is None:
            continue
        chat = text.message.branch.chat
        if chat.pk not in allowed:
            allowed[chat.pk] = may_embed(chat, provider=provider)
        if allowed[chat.pk]:
            wanted[text.pk] = vectors.passages(text.message.text)
    prefix = vectors.prefixes(space.model.name)[1] if space.model else ""
    waiting: dict[int, list[str]] = {}
    for key, parts in wanted.items():
        waiting[key] = parts
        if sum(map(len, waiting.values())) >= BATCH:
            embed_some(space, waiting, embedder=embedder, prefix=prefix)
            waiting = {}
    embed_some(space, waiting, embedder=embedder, prefix=prefix)


def take_back(space: VectorSpace, texts: QuerySet[SearchText]) -> None:
    """Delete the vectors of texts whose policy, folder or owner no longer lets the model have them.

    So each pass does what changed since the one before it.
    """
    provider = space.model.provider if space.model else ""
    embedded = TextVector.objects.filter(space=space, text__in=texts.values("pk"))
    for chat in Chat.objects.filter(pk__in=embedded.values("message__branch__chat")):
        if permission(chat, provider=provider) is False:
            vectors.withdraw(space, texts.filter(message__branch__chat=chat))


def embed_some(
    space: VectorSpace, texts: Mapping[int, Sequence[str]], *, embedder: Embedder, prefix: str
) -> None:
    """Embed some texts and store their vectors. Raises `Unreachable`."""
    if not texts:
        return
    databases.give_back()
    made: dict[int, Sequence[bytes] | None] = {}
    whole = [part for parts in texts.values() for part in parts]
    try:
        found = iter(asyncio.run(call(embedder, whole, prefix=prefix)) if whole else ())
        made = {key: [next(found) for _ in parts] for key, parts in texts.items()}
    except ProviderError as error:
        if error.code not in OF_A_TEXT:
            raise Unreachable(error.code) from error
        if error.code == "provider_protocol":
            # Either one text has no usable vector, or this is no server of embeddings at all.
            check_takes_any(embedder)
        made = {key: one_by_one(parts, embedder, prefix=prefix) for key, parts in texts.items()}
        if None in made.values():
            check_takes_any(embedder)
    try:
        vectors.store(space, made)
    except vectors.OtherDimensions:
        raise Unreachable(WRONG) from None


async def call(embedder: Embedder, texts: Sequence[str], *, prefix: str) -> list[bytes]:
    """Return the packed vectors of passages. Raises ProviderError."""
    found: list[bytes] = []
    for start in range(0, len(texts), BATCH):
        some = [prefix + text for text in texts[start : start + BATCH]]
        made = await embedder.vectors(some, timeouts=within(CALL_SECONDS))
        found += [nearest.packed(vector) for vector in made]
    return found


def one_by_one(parts: Sequence[str], embedder: Embedder, *, prefix: str) -> Sequence[bytes] | None:
    """Embed the passages of one text each by itself, those that are too long in halves.

    None if its model makes a vector of none of them. Raises `Unreachable`.
    """
    found: list[bytes] = []
    waiting = list(parts)
    while waiting:
        part = waiting.pop(0)
        try:
            found += asyncio.run(call(embedder, [part], prefix=prefix))
        except ProviderError as error:
            halves = vectors.halves(part)
            if error.code not in OF_A_TEXT or (not halves and error.code == "provider_timeout"):
                raise Unreachable(error.code) from error
            waiting = [*halves, *waiting]
    return found or (None if parts else [])


def check_takes_any(embedder: Embedder) -> None:
    """Raise `Unreachable` where a model refuses a short word too: then it is not about the text."""
    try:
        asyncio.run(call(embedder, [PROBE], prefix=""))
    except ProviderError as error:
        raise Unreachable(error.code) from error


def within(seconds: float) -> Timeouts:
    """Return the time of a call."""
    return replace(Timeouts(**settings.PROVIDER_TIMEOUTS), total=seconds)


def may_embed(chat: Chat, *, provider: str) -> bool:
    """Tell whether a model of a provider may have the words of a chat."""
    return chat.deleted_at is None and permission(chat, provider=provider) is True


def permission(chat: Chat, *, provider: str) -> bool | None:
    """Return whether a chat lets a provider have its words; None where nothing governs it now."""
    if chat.temporary or chat.without_memory:
        return False
    if chat.folder_id and Folder.objects.filter(pk=chat.folder_id, without_memory=True).exists():
        return False
    try:
        choice = model_choice.choose(chat=chat)
    except Refusal:
        return None
    is_open = rights.closed_archive(choice) is None
    return is_open and allows(choice.values.memory_providers, provider=provider)


def allows(names: Sequence[str] | None, *, provider: str) -> bool:
    """Tell whether a policy's list of providers lets one have what is known of a person."""
    return names is None or provider in names


def asking() -> QuestionEmbedder | None:
    """Return who makes vectors of questions; None where nothing is compared by meaning.

    Raises `Unreachable`.
    """
    space = vectors.serving()
    if space is None:
        return None
    embedder = embedder_of(space)
    name, provider = (space.model.name, space.model.provider) if space.model else ("", "")
    return QuestionEmbedder(
        space.pk, space.dimensions or 0, embedder, vectors.prefixes(name)[0], provider
    )


async def as_vector(text: str, *, by: QuestionEmbedder, seconds: float) -> QuestionVector:
    """Return a question as a vector, within so many seconds; or why there is none."""
    if BREAKER.is_open():
        return QuestionVector(note="breaker")
    part = (vectors.passages(text) or [""])[-1]
    try:
        async with asyncio.timeout(seconds):
            (vector,) = await by.embedder.vectors([by.prefix + part], timeouts=within(seconds))
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


def enqueue_due() -> int:
    """Send the task of a pass that is due, or of a space that is to be deleted."""
    free = Q(lease_until=None) | leases.ended()
    due = VectorSpace.objects.filter(free, due_at__lte=Now())
    retired = VectorSpace.objects.filter(state=VectorSpace.State.RETIRED)
    if not due.exists() and not retired.exists():
        return 0
    queue.enqueue(queue.EMBED)
    return 1
