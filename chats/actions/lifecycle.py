"""Creates and renames a user's chats, and changes their models."""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.utils.translation import gettext, gettext_noop

from chats.actions import statements
from chats.files import attach
from chats.ground import databases, queue
from chats.ground.refusals import Refusal
from chats.models import ApiKey, Branch, Chat, KeptText, ProviderAccount, Team, Turn
from chats.prompt import model_choice
from chats.record import access, kept_texts, locking, notices
from chats.record.idempotency import IdempotentRequest
from chats.turns.follow_up_turns import retry_turn
from chats.turns.start import Accepted, replay_request, start_turn
from chats.turns.statements import PERSON_LOCK
from contextpolicy import ledger, resolution
from contextpolicy.engine.text import names
from contextpolicy.models import ModelSpec
from speed import prepared

TITLE_LENGTH = 200


class TooManyChats(Refusal):
    """You have too many chats (`CHATS_PER_USER`, 20,000 by default). Delete some first."""

    code = "too_many_chats"
    status = 409
    sentence = gettext_noop("You have reached your limit of {limit:,} chats. Delete some first.")


class TemporaryNotAllowed(Refusal):
    """Your policy does not allow temporary chats. Create a regular chat."""

    code = "temporary_not_allowed"
    status = 403
    sentence = gettext_noop(
        "The policy {policy} does not allow temporary chats. Create a regular chat instead."
    )
    param = "temporary"


class TitleTooLong(Refusal):
    """The title has more than 200 characters. Titles are never truncated."""

    code = "too_long"
    status = 422
    sentence = gettext_noop(
        "The title has {length} characters. The limit is {limit}. Shorten the title."
    )
    param = "title"


class InvalidTitle(Refusal):
    """The title contains a line break, control character or direction override, or is invisible."""

    code = "invalid_character"
    status = 422
    sentence = gettext_noop(
        "The title contains a character that is not allowed, or no visible character. Remove line "
        "breaks, control characters and direction overrides."
    )
    param = "title"


class UnknownModel(Refusal):
    """The model does not exist or is disabled."""

    code = "unknown_model"
    status = 422
    sentence = gettext_noop("No model is named “{model}”. Choose one from the list.")
    param = "model"


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """A model in the list of choices for a chat.

    `allowed`: the policy permits the model. `why_not`: the reason if it does not, as a
    sentence. `current`: the chat uses the model.
    """

    spec: ModelSpec
    provider_name: str
    allowed: bool
    why_not: str
    current: bool
    is_demo: bool
    # The model is in use, and allows a cache warm-up when the user starts typing.
    warms_up: bool


def create_chat(
    *,
    owner: AbstractBaseUser,
    now: datetime,
    title: str = "",
    model: ModelSpec | None = None,
    system_text: str = "",
    temporary: bool = False,
    team: Team | None = None,
    client_id: str = "",
) -> Chat:
    """Create an empty chat with its first branch.

    With a `team`, its agents reply instead of a model. `client_id` is unique among the owner's
    chats. The caller has locked the owner's row, so that parallel requests count each other's
    chats.

    Raises `TooManyChats`, `TitleTooLong`, `InvalidTitle` and `TemporaryNotAllowed`.
    """
    check_title(title)
    if temporary:
        check_temporary(owner)
    check_chat_number(owner.pk)
    chat = Chat(
        owner_id=owner.pk,
        title=title,
        model=model,
        system_text=system_text,
        temporary=temporary,
        team=team,
        team_task=team.current.task or None if team and team.current else None,
        client_id=client_id,
        created_at=now,
        updated_at=now,
    )
    # Chat and branch refer to each other. Databases check that at commit.
    chat.active_branch = branch = Branch(chat=chat, created_at=now)
    with transaction.atomic():
        prepared.insert_row(chat)
        prepared.insert_row(branch)
        ledger.begin_chain("chat.created", actor=f"user:{owner.pk}", now=now, chat_id=chat.pk)
    return chat


def check_chat_number(owner_id: int) -> None:
    """Raise `TooManyChats` if a user cannot have one more chat. The caller has locked the user."""
    if statements.count_owner_chats(owner_id) >= settings.CHATS_PER_USER:
        raise TooManyChats(limit=settings.CHATS_PER_USER)


def check_temporary(owner: AbstractBaseUser) -> None:
    """Raise `TemporaryNotAllowed` unless the user's policies allow temporary chats."""
    effective = model_choice.resolve_effective_policy(chat=Chat(owner_id=owner.pk), model=None)
    if not resolution.load_policy_values(effective).temporary_chats:
        raise TemporaryNotAllowed(policy=effective.label)


def start_in_new_chat(
    *,
    user: AbstractBaseUser,
    text: str,
    now: datetime,
    title: str = "",
    model_slug: str = "",
    temporary: bool = False,
    team_id: uuid.UUID | None = None,
    idempotency_key: str = "",
    api_key: ApiKey | None = None,
    files: Sequence[uuid.UUID] = (),
    unread: bool = False,
) -> Accepted:
    """Create a chat with its first message, in one transaction.

    Without a title, the message provides one. `files` and `unread` are passed to
    `start_turn`. Raises the refusals of `create_chat`, `find_model`, `access.get_team` and
    `turns.start.start_turn`.
    """
    marks = f"{model_slug}\n" + "temporary\n" * temporary
    marks += f"team:{team_id}\n" if team_id else ""
    marks += f"files:{','.join(map(str, files))}\n" if files else ""
    said = hashlib.sha256(marks.encode() + text.encode("utf-8", "surrogatepass")).hexdigest()
    body = f"{said}\n{title}" if title else said
    keyed = IdempotentRequest(user=user, route="chats", key=idempotency_key, body=body)
    copies = attach.load_image_copies(files, user=user)
    with transaction.atomic():
        # There is no chat to lock, so the user's row serialises two requests with one key.
        User.objects.select_for_update(no_key=True).get(pk=user.pk)
        known = keyed.find(now=now)
        if known:
            return replay_request(known)
        model = find_model(model_slug) if model_slug else None
        team = access.get_team(user=user, team_id=team_id) if team_id else None
        title = names.normalise_name(title)
        chat = create_chat(
            owner=user, now=now, title=title, model=model, temporary=temporary, team=team
        )
        accepted = start_turn(
            user=user,
            chat=chat,
            text=text,
            now=now,
            api_key=api_key,
            files=files,
            unread=unread,
            copies=copies,
        )
        result = {"message": str(accepted.message.pk), "turn": str(accepted.turn.pk)}
        keyed.remember(result=result, now=now)
    return accepted


def check_title(title: str) -> None:
    """Raise `TitleTooLong` or `InvalidTitle` for a title that cannot be stored."""
    if len(title) > TITLE_LENGTH:
        raise TitleTooLong(limit=TITLE_LENGTH, length=len(title))
    if title and not names.is_allowed_name(title):
        raise InvalidTitle


@transaction.atomic
def rename_chat(*, chat: Chat, title: str, actor: str, now: datetime) -> Chat:
    """Rename the chat. An empty title keeps the old one.

    The ledger records only the lengths. Raises `TitleTooLong` and `InvalidTitle`.
    """
    title = names.normalise_name(title)
    check_title(title)
    before = locking.lock_chat_for_writing(chat.pk).title if title else chat.title
    if title:
        if title != before:
            kept_texts.keep_chat_text(
                KeptText.Kind.CHAT_TITLE, before, chat=chat, actor=actor, now=now
            )
        chat.title, chat.titled_by_model = title, False
        chat.save(update_fields=["title", "titled_by_model"])
    if title and title != before:
        lengths = {"from": len(before), "to": len(title)}
        told = {"characters": lengths}
        ledger.record_event("chat.renamed", actor=actor, now=now, chat_id=chat.pk, data=told)
    return chat


def find_model(slug: str) -> ModelSpec:
    """Return an enabled model by its slug. Raises `UnknownModel`."""
    model = ModelSpec.objects.filter(slug=slug, enabled=True).first()
    if model is None:
        raise UnknownModel(model=slug[:120])
    return model


@transaction.atomic
def choose_model(*, chat: Chat, model_slug: str, actor: str, now: datetime) -> Chat:
    """Change the chat's model from the next turn on.

    Raises `UnknownModel`, the refusals of `model_choice.choose_chat_model`, and `NotFound` if the
    chat was deleted.
    """
    stored = locking.lock_chat_for_writing(chat.pk)
    before = stored.model.slug if stored.model else ""
    chat.model = find_model(model_slug)
    model_choice.choose_chat_model(chat=chat)
    chat.save(update_fields=["model"])
    ledger.record_event(
        "chat.model_changed",
        actor=actor,
        now=now,
        chat_id=chat.pk,
        data={"from": before, "to": model_slug},
    )
    # The chat may exceed the thresholds of a smaller window. The next prompt fits in any case.
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return chat


@transaction.atomic
def retry_with(*, user: AbstractBaseUser, turn: Turn, model_slug: str, now: datetime) -> Turn:
    """Retry a turn. With a model slug, the chat's model changes first.

    Raises the refusals of `turns.follow_up_turns.retry_turn` and `choose_model`.
    """
    if model_slug:
        # The owner is locked before the ledger, as in `branching.lock_for_branching`.
        chat = locking.lock_chat_for_writing(turn.branch.chat_id)
        PERSON_LOCK.hold(owner=chat.owner_id)
        choose_model(chat=chat, model_slug=model_slug, actor=f"user:{user.pk}", now=now)
    return retry_turn(user=user, turn=turn, now=now)


def mark_read(*, chat: Chat) -> None:
    """Mark the chat as read. If the database stays locked, the chat stays unread."""
    if chat.unread:
        databases.write_if_possible("the read mark of a chat", partial(clear_unread, chat))


def clear_unread(chat: Chat) -> None:
    Chat.objects.filter(pk=chat.pk).update(unread=False)
    chat.unread = False
    notices.announce_chat(chat.pk)


def build_model_choices(
    *,
    chat: Chat | None,
    user: AbstractBaseUser,
    choice: model_choice.ChosenModel | None = None,
    models: Sequence[Any] | None = None,
    wanted: str = "",
) -> Sequence[OfferedModel]:
    """List all enabled models; mark those that the policy allows and the one that the chat uses.

    `wanted`: the slug of the model for a chat that has none; the default model if it is not
    offered. Pass the chat's `choice`, and `models` from `load_enabled_models`, if they are already
    loaded.
    """
    probe = chat or Chat(owner_id=user.pk)
    specs = load_enabled_models() if models is None else models
    named = next((spec for spec in specs if spec.slug == wanted), None)
    current = probe.model or named or find_default_model(specs)
    if choice is not None and choice.model == current:
        effective = choice.effective
    else:
        effective = model_choice.resolve_effective_policy(chat=probe, model=current)
    values = resolution.load_policy_values(effective)
    return [
        OfferedModel(
            spec=spec,
            provider_name=spec.provider_name,
            allowed=values.allowed_models is None or spec.slug in values.allowed_models,
            why_not=gettext(
                "The policy {policy} does not allow this model. Choose another model."
            ).format(policy=effective.label),
            current=spec == current,
            is_demo=spec.provider_kind == ProviderAccount.Kind.DEMO,
            warms_up=spec == current
            and values.warm_up
            and not model_choice.has_price(spec)
            and model_choice.can_warm_up_account(
                ProviderAccount(
                    kind=spec.provider_kind,
                    base_url=spec.provider_url,
                    warm_up=spec.provider_warms_up,
                )
            ),
        )
        for spec in specs
        if spec.provider_name is not None
    ]


def load_enabled_models() -> list[Any]:
    """Return the enabled models with the required fields of their providers."""
    return statements.ENABLED_MODELS.rows()


def find_default_model(models: Sequence[ModelSpec]) -> ModelSpec | None:
    return next((spec for spec in models if spec.is_default), None)
