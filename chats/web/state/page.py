"""The chat state: shown beside the meter, edited on its own page."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop, ngettext
from django.views.decorators.http import require_http_methods, require_POST

from chats.actions import state_edits
from chats.ground.refusals import Refusal
from chats.models import Chat, ChatState
from chats.record import access, states
from chats.record.states import Kept, StateChanged
from chats.web.auth import PersonRequest, signed_in
from chats.web.reasons import STATE_VERSIONS
from chats.web.state.form import (
    StateForm,
    format_state_value,
    normalise_field_value,
    parse_base_version,
)


@dataclass(frozen=True, slots=True)
class FieldView:
    """A field of the state with its value. An empty value means unknown."""

    name: str
    label: str
    value: str
    source: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class StateView:
    fields: Sequence[FieldView]
    version: int

    @property
    def known(self) -> int:
        return sum(1 for field in self.fields if field.source)

    @property
    def words(self) -> str:
        """Localized count of known fields, such as “2 of 3 fields known”."""
        return ngettext(
            "{known:,} of {n:,} field known", "{known:,} of {n:,} fields known", len(self.fields)
        ).format(known=self.known, n=len(self.fields))


def build_state_view(kept: Kept) -> StateView:
    return StateView(
        fields=[build_field_view(kept, name) for name in kept.names], version=kept.version
    )


def get_field_title(name: str, *, kept: Kept) -> str:
    """Return the `title` of a field in the schema, or its name."""
    declared = kept.schema.get("properties", {}).get(name)
    return str(declared.get("title", name) if isinstance(declared, Mapping) else name)


def build_field_view(kept: Kept, name: str) -> FieldView:
    title = get_field_title(name, kept=kept)
    if name not in kept.values:
        return FieldView(name=name, label=title, value="", source="", at=None)
    origin = kept.row.origins[name] if kept.row else {}
    return FieldView(
        name=name,
        label=title,
        value=format_state_value(kept.values[name]),
        source=str(STATE_VERSIONS[origin["by"]]).format(seq=origin["seq"]),
        at=datetime.fromisoformat(origin["at"]),
    )


class StateFieldsChanged(Refusal):
    """The policy no longer declares a field that the user has changed. Nothing was saved."""

    code = "state_fields_changed"
    status = 409
    sentence = gettext_noop(
        "The policy no longer declares these fields of the state: {fields}. Nothing was saved. "
        "Review the other values and save again."
    )


@require_http_methods(["GET", "POST"])
@signed_in
def chat_state(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the state with its form, or save corrections. Refused values stay in the form."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    found = state_edits.load_chat_state(chat=chat)
    if request.method == "GET":
        return render_state_page(request, chat, found.kept)
    form = StateForm(found.kept, data=request.POST)
    if not form.is_valid():
        return render_state_page(request, chat, found.kept, form=form, status=422)
    if typed := list_undeclared_fields(form, kept=found.kept):
        refusal: Refusal = StateFieldsChanged(fields=", ".join(field.label for field in typed))
        return render_state_page(request, chat, found.kept, form=form, typed=typed, refusal=refusal)
    try:
        found = state_edits.edit_state(
            chat=chat,
            user=request.user,
            version=parse_base_version(request.POST),
            values=form.said,
            removed=form.removed,
            now=timezone.now(),
        )
    except StateChanged as refusal:
        # Show the current values, next to the values typed over an older version.
        now = state_edits.load_chat_state(chat=chat)
        seen = states.find_newest_state(now.branch, up_to=parse_base_version(request.POST))
        differing = list_changed_fields(form, seen=seen, kept=now.kept)
        return render_state_page(request, chat, now.kept, typed=differing, refusal=refusal)
    except Refusal as refusal:
        return render_state_page(request, chat, found.kept, form=form, refusal=refusal)
    saved = gettext("State saved. It applies starting with the next message.")
    return render_saved_state(request, chat, found.kept, saved=saved, note="state-saved")


@require_POST
@signed_in
def state_reset(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    version = parse_base_version(request.POST)
    try:
        found = state_edits.reset_state(
            chat=chat, user=request.user, version=version, now=timezone.now()
        )
    except StateChanged as refusal:
        return render_state_page(
            request, chat, state_edits.load_chat_state(chat=chat).kept, refusal=refusal
        )
    saved = gettext("State cleared. The next messages fill it again.")
    return render_saved_state(request, chat, found.kept, saved=saved, note="state-cleared")


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A field that a version changed, formatted. Empty values are unknown."""

    label: str
    before: str
    after: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class VersionView:
    row: ChatState
    changes: Sequence[ChangeView]
    is_current: bool

    @property
    def kind(self) -> str:
        return str(ChatState.Kind(self.row.kind).label)


@require_http_methods(["GET", "POST"])
@signed_in
def state_history(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the state's versions with their changes, or restore the chosen one."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    if request.method == "GET":
        return render_state_history(request, chat)
    try:
        state_edits.restore_state(
            chat=chat,
            user=request.user,
            version=parse_base_version(request.POST),
            to=parse_base_version(request.POST, "to"),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return render_state_history(request, chat, refusal=refusal)
    return redirect("chats:state-history", chat.pk)


def render_state_history(
    request: PersonRequest, chat: Chat, *, refusal: Refusal | None = None
) -> HttpResponse:
    found, versions = state_edits.list_state_history(chat=chat)
    context = {
        "chat": chat,
        "version": found.kept.version,
        "versions": [build_version_view(one, kept=found.kept) for one in versions],
        "most": states.MOST_VERSIONS,
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200
    return render(request, "chats/state_history.html", context, status=status)


def build_version_view(version: states.Version, *, kept: Kept) -> VersionView:
    changes = [
        ChangeView(
            label=get_field_title(change.name, kept=kept),
            before="" if change.before is None else format_state_value(change.before),
            after="" if change.after is None else format_state_value(change.after),
            seq=change.seq,
        )
        for change in version.changes
    ]
    return VersionView(version.row, changes, is_current=version.row.version == kept.version)


def list_changed_fields(form: StateForm, *, seen: ChatState | None, kept: Kept) -> list[FieldView]:
    """Return the values that the user changed and that differ from the current state.

    Left out are emptied fields, and fields that only another version changed.
    """
    known = [kept.values, *([seen.values] if seen else [])]
    return [
        replace(build_field_view(kept, name), value=format_state_value(value))
        for name, value in form.said.items()
        if not any(values.get(name) == value for values in known)
    ]


def list_undeclared_fields(form: StateForm, *, kept: Kept) -> list[FieldView]:
    """Return the submitted fields that the schema no longer declares and the user has changed."""
    stored = {name: format_state_value(value) for name, value in kept.values.items()}
    return [
        FieldView(name=name, label=name, value=text, source="", at=None)
        for name, text in form.list_undeclared().items()
        if normalise_field_value(text) not in (stored.get(name), json.dumps(kept.values.get(name)))
    ]


def render_saved_state(
    request: PersonRequest, chat: Chat, kept: Kept, *, saved: str, note: str
) -> HttpResponse:
    """Return the new state: as a partial for htmx, otherwise as a redirect.

    The redirect prevents a reload from submitting the form again.
    """
    if not request.htmx:
        return redirect("chats:state", chat.pk)
    return render_state_page(request, chat, kept, saved=saved, saved_note=note)


def render_state_page(
    request: PersonRequest,
    chat: Chat,
    kept: Kept,
    *,
    form: StateForm | None = None,
    typed: Sequence[FieldView] = (),
    refusal: Refusal | None = None,
    saved: str = "",
    saved_note: str = "",
    status: int = 200,
) -> HttpResponse:
    """Render the page, or only its changing part for htmx."""
    view, form = build_state_view(kept), form or StateForm(kept)
    # Declared fields come first, in the order of their controls.
    declared = len(form.names)
    context = {
        "chat": chat,
        "state": view,
        "rows": list(zip(form, view.fields, strict=False)),
        "others": view.fields[declared:],
        "typed": typed,
        "refusal": refusal,
        "saved": saved,
        "saved_note": saved_note,
    }
    if request.htmx:
        # Status 200, because htmx does not swap in a response with an error status.
        return render(request, "chats/_state_form.html", context)
    return render(
        request, "chats/state.html", context, status=refusal.status if refusal else status
    )
