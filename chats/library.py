"""A person's chats: create, name, choose a model, delete, list."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, Subquery

from chats import answering, queue
from chats.idempotency import Keyed
from chats.memory import archive
from chats.models import ApiKey, Branch, Chat, Message, ProviderAccount, Turn
from chats.refusals import Refusal
from chats.turns.start import UNFINISHED, Accepted, recall, start
from contextpolicy import ledger, prepared, resolution
from contextpolicy.models import ModelSpec

TITLE_LENGTH = 200
# Chats of one page of the list.
LISTED = 50


class TooManyChats(Refusal):
    """The person has as many chats as they may."""

    code = "chat_full"
    status = 409
    sentence = "You have {limit:,} chats and cannot open another. Delete some first."


class TitleTooLong(Refusal):
    """Titles have a limit and are never cut."""

    code = "too_long"
    status = 422
    sentence = "A title has at most {limit} characters; this one has {length}."
    param = "title"


class InvalidTitle(Refusal):
    """A control character, or half of a surrogate pair."""

    code = "invalid_character"
    status = 422
    sentence = "The title has a character that cannot be stored."
    param = "title"


class UnknownModel(Refusal):
    """No such model, or it is switched off."""

    code = "unknown_model"
    status = 422
    sentence = "There is no model called “{model}” here. Choose one from the list."
    param = "model"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One entry of the model picker."""

    spec: ModelSpec
    provider_name: str
    allowed: bool
    why_not: str
    current: bool
    is_demo: bool


@dataclass(frozen=True, slots=True)
class ListPlace:
    """Where a chat stood in the list when it was shown."""

    pinned: bool
    updated_at: datetime
    pk: uuid.UUID

    @classmethod
    def of(cls, chat: Chat) -> Self:
        """The place of a chat now."""
        return cls(chat.pinned, chat.updated_at, chat.pk)

    def following(self) -> Q:
        """The condition of what stands after it; the first part of it leads through the index."""
        later = Q(updated_at__lt=self.updated_at) | Q(pk__lt=self.pk)
        # As one of a list, which SQLite looks up in an index; "not pinned" it does not.
        same = Q(pinned__in=[self.pinned], updated_at__lte=self.updated_at) & later
        return same | Q(pinned=False) if self.pinned else same


def create_chat(
    *,
    owner: AbstractBaseUser,
    now: datetime,
    title: str = "",
    model: ModelSpec | None = None,
    system_text: str = "",
) -> Chat:
    """A new, empty chat with its first branch. Raises `TooManyChats` and `TitleTooLong`."""
    check_title(title)
    if Chat.objects.filter(owner=owner.pk).count() >= settings.CHATS_PER_USER:
        raise TooManyChats(limit=settings.CHATS_PER_USER)
    chat = Chat(
        owner_id=owner.pk,
        title=title,
        model=model,
        system_text=system_text,
        created_at=now,
        updated_at=now,
    )
    # Each names the other; databases look at that when the transaction ends.
    chat.active_branch = branch = Branch(chat=chat, created_at=now)
    with transaction.atomic():
        prepared.insert(chat)
        prepared.insert(branch)
        ledger.begin_chain("chat.created", actor=f"user:{owner.pk}", now=now, chat_id=chat.pk)
    return chat


def start_in_new_chat(
    *,
    user: AbstractBaseUser,
    text: str,
    now: datetime,
    model_slug: str = "",
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
) -> Accepted:
    """The first message of a new chat, in one transaction: both exist or neither does.

    Raises what `create_chat`, `find_model` and `turns.start.start` raise.
    """
    body = hashlib.sha256(f"{model_slug}\n".encode() + text.encode("utf-8", "surrogatepass"))
    keyed = Keyed(user=user, route="chats", key=idempotency_key, body=body.hexdigest())
    with transaction.atomic():
        # Without a chat to lock, the person's row puts two requests with one key in order.
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        known = keyed.find(now=now)
        if known:
            return recall(known)
        model = find_model(model_slug) if model_slug else None
        chat = create_chat(owner=user, now=now, model=model)
        accepted = start(user=user, chat=chat, text=text, now=now, api_key=api_key)
        result = {"message": str(accepted.message.pk), "turn": str(accepted.turn.pk)}
        keyed.remember(result=result, now=now)
    return accepted


def check_title(title: str) -> None:
    """Raise `TitleTooLong` or `InvalidTitle`."""
    if len(title) > TITLE_LENGTH:
        raise TitleTooLong(limit=TITLE_LENGTH, length=len(title))
    if any(ord(c) < 32 or "\ud800" <= c <= "\udfff" for c in title):
        raise InvalidTitle


@transaction.atomic
def rename_chat(*, chat: Chat, title: str, actor: str, now: datetime) -> Chat:
    """Give the chat a title; an empty one keeps the old."""
    del actor, now  # a title is the owner's own and changes nothing that is sent
    title = title.strip()
    check_title(title)
    if title:
        chat.title = title
        chat.save(update_fields=["title"])
    return chat


@transaction.atomic
def delete_chat(*, chat: Chat, actor: str, now: datetime) -> None:
    """Remove the chat with everything said in it; its audit events stay.

    A turn that still runs finds its row gone at its next write, and ends.
    """
    counted = Message.objects.filter(branch__chat=chat).count()
    chat_id = chat.pk
    Chat.objects.filter(pk=chat.pk).update(active_branch=None)
    archive.forget_chat(chat_id)
    chat.delete()
    ledger.record("chat.deleted", actor=actor, now=now, chat_id=chat_id, data={"messages": counted})


def find_model(slug: str) -> ModelSpec:
    """A usable model by its slug. Raises `UnknownModel`."""
    model = ModelSpec.objects.filter(slug=slug, enabled=True).first()
    if model is None:
        raise UnknownModel(model=slug[:120])
    return model


@transaction.atomic
def choose_model(*, chat: Chat, model_slug: str, actor: str, now: datetime) -> Chat:
    """Answer with another model from the next turn on.

    Raises `UnknownModel`, and `ModelNotAllowed` when the chat's policy forbids it.
    """
    before = chat.model.slug if chat.model else ""
    chat.model = find_model(model_slug)
    answering.choose(chat=chat)
    chat.save(update_fields=["model"])
    ledger.record(
        "chat.model_changed",
        actor=actor,
        now=now,
        chat_id=chat.pk,
        data={"from": before, "to": model_slug},
    )
    # A smaller window may have passed its marks already; the next prompt fits in any case.
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return chat


def mark_read(*, chat: Chat) -> None:
    """The person has seen the newest reply."""
    if chat.unread:
        Chat.objects.filter(pk=chat.pk).update(unread=False)
        chat.unread = False


def chats_of(
    *, owner: AbstractBaseUser, after: ListPlace | None = None
) -> tuple[list[Chat], ListPlace | None]:
    """The next chats of the person's list, each with `is_replying`, and the place of the last.

    Pinned ones first, then newest first. No place: there are no more.
    """
    running = Turn.objects.filter(branch__chat=OuterRef("pk"), status__in=UNFINISHED)
    rows = Chat.objects.filter(owner=owner.pk, archived=False).annotate(is_replying=Exists(running))
    rows = rows.filter(after.following()) if after else rows
    found = list(rows.order_by("-pinned", "-updated_at", "-pk")[: LISTED + 1])
    page: list[Chat] = [*found[:LISTED]]
    return page, ListPlace.of(page[-1]) if len(found) > LISTED else None


def models_for(
    *,
    chat: Chat | None,
    user: AbstractBaseUser,
    choice: answering.Choice | None = None,
    models: Sequence[Any] | None = None,
) -> Sequence[ModelChoice]:
    """Every enabled model with whether the policy allows it here, and which is in use.

    `choice`: the chat's, `models`: `enabled_models`, where they are known already.
    """
    probe = chat or Chat(owner_id=user.pk)
    specs = enabled_models() if models is None else models
    current = probe.model or default_of(specs)
    if choice is not None and choice.model == current:
        effective = choice.effective
    else:
        effective = answering.effective_policy(chat=probe, model=current)
    values = resolution.values_of(effective)
    return [
        ModelChoice(
            spec=spec,
            provider_name=spec.provider_name,
            allowed=values.allowed_models is None or spec.slug in values.allowed_models,
            why_not=f"Not allowed by policy {effective.label}",
            current=spec == current,
            is_demo=spec.provider_kind == ProviderAccount.Kind.DEMO,
        )
        for spec in specs
        if spec.provider_name is not None
    ]


def enabled_models() -> list[Any]:
    """The models that are switched on, each with its provider's name and kind."""
    accounts = ProviderAccount.objects.filter(slug=OuterRef("provider"), enabled=True)
    rows = ModelSpec.objects.filter(enabled=True).annotate(
        provider_name=Subquery(accounts.values("name")[:1]),
        provider_kind=Subquery(accounts.values("kind")[:1]),
    )
    return list(rows)


def default_of(models: Sequence[ModelSpec]) -> ModelSpec | None:
    """The model of chats that chose none."""
    return next((spec for spec in models if spec.is_default), None)
