"""Organises chats: pin, archive, move to folders, delete and restore."""

import uuid
from collections.abc import Collection, Iterable
from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.actions import deletion, listing, organising
from chats.models import Chat, Folder, PendingErasure
from chats.record import access, holds
from chats.web.auth import PersonRequest, format_actor, signed_in
from chats.web.chat_list import parse_open_chat_id
from chats.web.forms import OptionField, PageForm, TextField, build_text_input
from chats.web.shell import (
    archive_for,
    load_deleted_chats,
    load_folder_chats,
    parse_deleted_place,
    parse_list_place,
)

# Values of the buttons that set or clear a flag.
FLAGS = {"yes": True, "no": False}
ERASURES_SHOWN = 100


class FolderForm(PageForm):
    """The name of a folder."""

    id_format = "folder-%s"

    name = TextField(
        label=gettext_lazy("Name"),
        max_length=organising.NAME_LENGTH,
        widget=build_text_input(),
    )


class FolderChoiceForm(PageForm):
    """The folder of a chat, or the name of a new one."""

    folder = OptionField(label=gettext_lazy("Folder"), required=False, widget=forms.RadioSelect)
    name = TextField(
        label=gettext_lazy("New folder"),
        required=False,
        max_length=organising.NAME_LENGTH,
        help_text=gettext_lazy("Only you can see your folders. A chat can be in one folder."),
        widget=build_text_input(),
    )

    def __init__(self, *args: Any, folders: Iterable[Folder], **options: Any) -> None:
        super().__init__(*args, auto_id="folder-%s", **options)
        cast(OptionField, self.fields["folder"]).choices = [
            ("", gettext_lazy("No folder")),
            *((str(folder.pk), folder.name) for folder in folders),
        ]


@require_POST
@signed_in
def chat_organise(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Pin, unpin, archive or unarchive the chat, depending on the pressed button."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    organising.organise_chat(
        chat=chat,
        user=request.user,
        pinned=FLAGS.get(request.POST.get("pinned", "")),
        archived=FLAGS.get(request.POST.get("archived", "")),
    )
    if "archive" in request.POST:
        return redirect("chats:archive")
    return redirect("chats:chat", chat.pk)


@require_http_methods(["GET", "POST"])
@signed_in
def chat_folder(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the user's folders, or move the chat to the chosen or a new one."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    if request.method == "GET":
        return render_folder_choice(request, chat)
    form = FolderChoiceForm(request.POST, folders=listing.list_folders(owner=request.user))
    values = form.read_values()
    with form.catch_refusal():
        if values["name"].strip():
            organising.move_to_named_folder(chat=chat, user=request.user, name=values["name"])
        else:
            folder = parse_folder_id(values["folder"])
            organising.organise_chat(chat=chat, user=request.user, folder=folder)
        return redirect("chats:chat", chat.pk)
    return render_folder_choice(request, chat, form=form)


def parse_folder_id(text: str) -> uuid.UUID | None:
    """Return the folder ID, None for an empty text. Raises `UnknownFolder` for an invalid ID."""
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        raise organising.UnknownFolder from None


def render_folder_choice(
    request: PersonRequest, chat: Chat, *, form: FolderChoiceForm | None = None
) -> HttpResponse:
    """Render the list of folders. `form`: a refused form, which keeps its values."""
    form = form or FolderChoiceForm(
        initial={"folder": str(chat.folder_id or "")},
        folders=listing.list_folders(owner=request.user),
    )
    context = {"chat": chat, "form": form, "refusal": form.refusal}
    return render(request, "chats/folder_choice.html", context, status=form.status)


@require_POST
@signed_in
def chat_delete(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Delete the chat and show the end of the restore period. A temporary chat is erased."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    chat = deletion.delete_chat(chat=chat, actor=format_actor(request), now=timezone.now())
    if chat.temporary:
        return redirect("chats:chat-new")
    return redirect("chats:chat-deleted", chat.pk)


@require_GET
@signed_in
def chat_deleted(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the time until which a deleted chat can be restored."""
    chat = access.get_deleted_chat(user=request.user, chat_id=chat_id)
    is_held = holds.is_held(chat, now=timezone.now())
    return render(request, "chats/chat_deleted.html", {"chat": chat, "is_held": is_held})


@require_POST
@signed_in
def chat_restore(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    chat = access.get_deleted_chat(user=request.user, chat_id=chat_id)
    deletion.restore_chat(chat=chat, actor=format_actor(request), now=timezone.now())
    return redirect("chats:chat", chat.pk)


@require_GET
@signed_in
def archive_page(request: PersonRequest) -> HttpResponse:
    """List archived and deleted chats, newest first.

    Each later page lists either archived or deleted chats.
    """
    after = parse_list_place(request.GET.get("after", ""))
    after_deleted = None if after else parse_deleted_place(request.GET.get("deleted", ""))
    context = {
        "is_later": after or after_deleted,
        "archived": None if after_deleted else archive_for(user=request.user, after=after),
        "deleted": None if after else load_deleted_chats(user=request.user, after=after_deleted),
        "days": settings.DELETED_CHAT_DAYS,
        "held": list_held_chat_ids(request),
        "pending_erasures": () if after or after_deleted else list_held_erasures(user=request.user),
    }
    return render(request, "chats/archive.html", context)


def list_held_chat_ids(request: PersonRequest) -> Collection[uuid.UUID]:
    """Return the IDs of the user's deleted chats under a legal hold."""
    rows = access.get_erasable_chats(user=request.user).filter(deleted_at__isnull=False)
    free = holds.exclude_held_chats(rows, now=timezone.now())
    return set(rows.exclude(pk__in=free.values("pk")).values_list("pk", flat=True))


def list_held_erasures(*, user: User) -> list[PendingErasure]:
    """Return pending erasures of messages and preferences under a legal hold."""
    return list(holds.list_pending_erasures(owner_id=user.pk).filter(chat=None)[:ERASURES_SHOWN])


@require_GET
@signed_in
def folder(request: PersonRequest, folder_id: uuid.UUID) -> HttpResponse:
    """Show chats of a folder, on its page or in the sidebar."""
    row = access.get_folder(user=request.user, folder_id=folder_id)
    return render_folder(request, row)


def render_folder(
    request: PersonRequest, row: Folder, *, form: FolderForm | None = None
) -> HttpResponse:
    """Render a folder: its chats with the rename and delete forms, or a sidebar partial."""
    after = parse_list_place(request.GET.get("after", ""))
    found = load_folder_chats(folder=row, after=after, current=parse_open_chat_id(request))
    form = form or FolderForm(initial={"name": row.name})
    context = {"folder": row, "list": found, "form": form, "refusal": form.refusal}
    template = "chats/folder.html"
    if request.htmx:
        template = "chats/_chat_groups.html" if after else "chats/_folder_chats.html"
    return render(request, template, context, status=form.status)


@require_POST
@signed_in
def folder_rename(request: PersonRequest, folder_id: uuid.UUID) -> HttpResponse:
    row = access.get_folder(user=request.user, folder_id=folder_id)
    form = FolderForm(request.POST)
    with form.catch_refusal():
        organising.rename_folder(folder=row, now=timezone.now(), **form.read_values())
        return redirect("chats:folder", row.pk)
    row.refresh_from_db()
    return render_folder(request, row, form=form)


@require_POST
@signed_in
def folder_delete(request: PersonRequest, folder_id: uuid.UUID) -> HttpResponse:
    """Delete the folder. Its chats are kept, without a folder."""
    row = access.get_folder(user=request.user, folder_id=folder_id)
    organising.delete_folder(folder=row, now=timezone.now())
    return redirect("chats:home")
