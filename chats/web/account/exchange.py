"""Import and export pages, for the account and for a chat."""

import uuid

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from chats.actions import retention_rules
from chats.exchange import documents, files, upload, whole
from chats.ground.refusals import NotFound, Refusal
from chats.record import access
from chats.streams.files import build_file_download
from chats.web.auth import PersonRequest, format_actor, signed_in

# Number of imports listed.
SHOWN = 10
# Exports of one chat: form, scope, label, description.
OFFERED = (
    (
        "markdown",
        "active",
        "Markdown",
        gettext_lazy(
            "You can read and edit this Markdown file in any editor. It cannot be imported again."
        ),
    ),
    (
        "html",
        "active",
        gettext_lazy("HTML page"),
        gettext_lazy(
            "You can read this HTML page in a browser, without a network connection. It cannot "
            "be imported again."
        ),
    ),
    (
        "json",
        "all",
        "JSON",
        gettext_lazy(
            "Other applications can read this JSON, which contains the messages of every "
            "branch. It cannot be imported again."
        ),
    ),
    (
        "bundle",
        "active",
        gettext_lazy("Bundle (ZIP)"),
        gettext_lazy(
            "This archive contains the summary, the originals and the images. It can be "
            "imported again."
        ),
    ),
    (
        "ui",
        "active",
        gettext_lazy("Messages as sent (JSONL)"),
        gettext_lazy(
            "Contains the active summary and the messages that it does not cover, on the "
            "active branch."
        ),
    ),
    (
        "ui",
        "full",
        gettext_lazy("All messages (JSONL)"),
        gettext_lazy("Contains every message of the active branch, in full and without summaries."),
    ),
    (
        "ui",
        "all",
        gettext_lazy("All branches (JSONL)"),
        gettext_lazy("Contains every message of every branch. The file can be imported again."),
    ),
)
EVERYTHING = (
    ("ui", gettext_lazy("JSONL (can be imported again)")),
    ("markdown", "Markdown"),
    ("html", gettext_lazy("HTML pages")),
    ("json", "JSON"),
)


@require_GET
@signed_in
def exchange(request: PersonRequest) -> HttpResponse:
    return render_exchange_page(request)


def render_exchange_page(request: PersonRequest, *, refusal: Refusal | None = None) -> HttpResponse:
    rows = upload.list_imports(request.user).order_by("-created_at", "-pk")
    context = {
        "everything": EVERYTHING,
        "refusal": refusal,
        "imports": rows[:SHOWN],
        "file_bytes": settings.IMPORT_FILE_BYTES,
        "retention_days": retention_rules.find_new_chat_days(request.user, now=timezone.now()),
    }
    return render(request, "exchange.html", context, status=refusal.status if refusal else 200)


@require_GET
@signed_in  # type: ignore[arg-type]  # returns a stream
def exchange_everything(request: PersonRequest) -> HttpResponseBase:
    """Send all of the user's data as one archive. Raises `NotFound` for an unknown format."""
    form = request.GET.get("form", "ui")
    if form not in {name for name, _ in EVERYTHING}:
        raise NotFound
    file = whole.build_account_archive(request.user, form=form, now=timezone.now())
    return build_file_download(file, name="palimpsest.zip")


@require_GET
@signed_in  # type: ignore[arg-type]  # may return a stream
def chat_export(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponseBase:
    """Show the export formats of a chat, or send its export in the requested format.

    Raises `NotFound` for an unknown format.
    """
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    form, scope = request.GET.get("form", ""), request.GET.get("scope", "active")
    if not form:
        return render(request, "chats/export.html", {"chat": chat, "offered": OFFERED})
    if (form, scope) not in {(name, reach) for name, reach, *_ in OFFERED}:
        raise NotFound
    kind, file = files.export_chat_file(
        chat, form=form, scope=scope, actor=format_actor(request), now=timezone.now()
    )
    return build_file_download(
        file, name=documents.build_export_filename(chat, form=form), kind=kind
    )
