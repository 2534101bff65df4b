"""The memory page: instructions, saved preferences, and chats without memory."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.actions import memory
from chats.ground.refusals import Refusal
from chats.memory.preferences import exported_memory, memory_settings, preferences
from chats.memory.preferences.preference_patterns import LONGEST_TEXT
from chats.models import Chat, MemorySettings, Message, Preference
from chats.record import access
from chats.streams import files
from chats.web.auth import PersonRequest, signed_in
from chats.web.forms import OptionField, PageForm, TextField, build_text_input

# Values of the switch buttons.
SWITCHES = ("on", "off", "pause", "resume", "propose", "only_told")


# Number of newest source messages shown per preference.
MOST_SOURCES = 3


class InstructionsForm(PageForm):
    """Instructions for all of the user's chats."""

    instructions = TextField(
        label=gettext_lazy("For all of your chats"),
        required=False,
        widget=forms.Textarea(attrs={"dir": "auto", "rows": 5}),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, auto_id="%s", **options)
        self.describe(
            "instructions",
            gettext(
                "Enter, for example, your name and the tone that you prefer for replies. Up to "
                "%(longest)s "
                "characters. Empty: no instructions."
            ),
            longest=memory_settings.LONGEST_INSTRUCTIONS,
        )


class PreferenceForm(PageForm):
    """A new preference."""

    id_format = "%s"

    slot = OptionField(
        label=gettext_lazy("Kind"),
        choices=Preference.Slot.choices,
        initial=Preference.Slot.NOTE,
        help_text=gettext_lazy(
            "You can have one preference of each kind, and any number of notes."
        ),
    )
    text = TextField(
        label=gettext_lazy("Preference"),
        max_length=LONGEST_TEXT,
        widget=build_text_input(),
    )


@dataclass(frozen=True, slots=True)
class SourceView:
    chat: Chat
    message: Message


@dataclass(frozen=True, slots=True)
class PreferenceView:
    """A preference with its newest source messages, and the number of other sources."""

    row: Preference
    sources: Sequence[SourceView]
    more: int
    # The refused new text, or None.
    typed: str | None = None

    @property
    def slot(self) -> str:
        return str(Preference.Slot(self.row.slot).label)

    @property
    def kind(self) -> str:
        return str(Preference.Kind(self.row.kind).label)


def build_preference_view(row: Preference, *, typed: str | None) -> PreferenceView:
    alive = [m for m in (item.message for item in row.evidence.all()) if is_alive(m)]
    alive.sort(key=lambda message: message.created_at, reverse=True)
    sources = [SourceView(message.branch.chat, message) for message in alive[:MOST_SOURCES]]
    return PreferenceView(row, sources, more=len(alive) - len(sources), typed=typed)


def is_alive(message: Message) -> bool:
    """Return True if the message's chat is not deleted."""
    return message.branch.chat.deleted_at is None


@require_http_methods(["GET", "POST"])
@signed_in
def memory_page(request: PersonRequest) -> HttpResponse:
    """Show the memory page, or save the instructions. A refused text stays in its field."""
    if request.method == "GET":
        return render_memory_page(request)
    form = InstructionsForm(request.POST)
    with form.catch_refusal():
        memory_settings.write_instructions(
            owner_id=request.user.pk,
            text=form.read_values()["instructions"],
            now=timezone.now(),
        )
        return redirect("chats:memory")
    return render_memory_page(request, form=form)


@require_POST
@signed_in
def memory_switch(request: PersonRequest) -> HttpResponse:
    """Turn memory or suggestions on or off, or pause or resume memory, as requested."""
    chosen, now = request.POST.get("to", ""), timezone.now()
    owner_id = request.user.pk
    try:
        if chosen in {"on", "off"}:
            memory_settings.set_consent(owner_id=owner_id, agrees=chosen == "on", now=now)
        elif chosen in {"propose", "only_told"}:
            agrees = chosen == "propose"
            memory_settings.set_inferring(owner_id=owner_id, agrees=agrees, now=now)
        elif chosen in SWITCHES:
            memory_settings.set_paused(owner_id=owner_id, paused=chosen == "pause", now=now)
    except Refusal as refusal:
        return render_memory_page(request, refusal=refusal)
    return redirect("chats:memory")


@require_GET
@signed_in
def memory_export(request: PersonRequest) -> HttpResponse:
    """Send the user's instructions, preferences and memory settings as a JSON file."""
    found = json.dumps(exported_memory.export_memory(request.user.pk), ensure_ascii=False, indent=2)
    return files.build_text_download(
        found, name="memory.json", kind="application/json; charset=utf-8"
    )


@require_POST
@signed_in
def preference_new(request: PersonRequest) -> HttpResponse:
    """Add a preference. A refused text stays in its field, next to the error."""
    form = PreferenceForm(request.POST)
    with form.catch_refusal():
        preferences.write_preference(
            owner_id=request.user.pk, now=timezone.now(), **form.read_values()
        )
        return redirect("chats:memory")
    return render_memory_page(request, added=form)


@require_POST
@signed_in
def preference(request: PersonRequest, preference_id: uuid.UUID) -> HttpResponse:
    """Change, accept or delete a preference, depending on the pressed button.

    The button `undo` deletes it and makes the preferences that it replaced active again. Raises
    `NotFound`.
    """
    found: dict[str, Any] = {"owner_id": request.user.pk, "preference_id": preference_id}
    found["now"] = timezone.now()
    preferences.get_preference(owner_id=request.user.pk, preference_id=preference_id)
    act = request.POST.get("act", "")
    try:
        if act == "save":
            preferences.rewrite_preference(**found, text=request.POST.get("text", ""))
        elif act == "accept":
            preferences.accept_preference(**found)
        elif act in {"delete", "undo"}:
            memory.delete_saved_preference(
                owner=request.user,
                preference_id=preference_id,
                now=timezone.now(),
                reopen=act == "undo",
            )
    except Refusal as refusal:
        edited = {preference_id: request.POST.get("text", "")} if act == "save" else {}
        return render_memory_page(request, refusal=refusal, edited=edited)
    return redirect(get_return_path(request))


def get_return_path(request: PersonRequest) -> str:
    """Return the local page that sent the form, or the memory page."""
    back = request.POST.get("next", "")
    is_here = url_has_allowed_host_and_scheme(back, allowed_hosts=None) and back.startswith("/")
    return back if is_here else reverse("chats:memory")


@require_POST
@signed_in
def chat_memory(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Turn the owner's memory on or off in a chat."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    memory.set_memory_of_chat(chat=chat, remembers=request.POST.get("remembers") == "yes")
    return redirect("chats:chat", chat.pk)


@require_POST
@signed_in
def folder_memory(request: PersonRequest, folder_id: uuid.UUID) -> HttpResponse:
    """Turn the owner's memory on or off in the chats of a folder."""
    folder = access.get_folder(user=request.user, folder_id=folder_id)
    memory.set_memory_of_folder(folder=folder, remembers=request.POST.get("remembers") == "yes")
    return redirect("chats:folder", folder.pk)


def render_memory_page(
    request: PersonRequest,
    *,
    refusal: Refusal | None = None,
    form: InstructionsForm | None = None,
    added: PreferenceForm | None = None,
    edited: Mapping[uuid.UUID, str] | None = None,
) -> HttpResponse:
    """Render the page. `form`, `added`: a refused form, which keeps its values.

    `edited`: the refused text of a preference, by its id.
    """
    settings: MemorySettings = memory_settings.get_memory_settings(request.user.pk)
    rows = [
        build_preference_view(row, typed=(edited or {}).get(row.pk))
        for row in preferences.list_preferences(request.user.pk)
    ]
    status = Preference.Status
    form = form or InstructionsForm(initial={"instructions": settings.instructions})
    added = added or PreferenceForm()
    refusal = refusal or form.refusal or added.refusal
    context = {
        "settings": settings,
        "form": form,
        "added": added,
        "longest_text": LONGEST_TEXT,
        "current": [view for view in rows if view.row.status == status.CURRENT],
        "proposed": [view for view in rows if view.row.status == status.PROPOSED],
        "past": [view for view in rows if view.row.status == status.SUPERSEDED],
        "refusal": refusal,
    }
    return render(request, "memory.html", context, status=refusal.status if refusal else 200)
