"""The actions on compactions that their owners have on pages, for administrators.

Each asks first. Where a policy says who may, the domain asks it; a row that refuses says why.
"""

from collections.abc import Callable
from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from chats.admin.confirm import confirmation, each
from chats.compaction import pauses
from chats.compaction.people import controls, undo
from chats.compaction.people.rights import EDITS_POLICIES
from chats.models import Chat, Compaction
from contextpolicy.admin.bases import ReadOnlyAdmin
from contextpolicy.admin.site import actor_of

OPERATES = "chats.change_provideraccount"
DEEDS = (
    "compact_now",
    "undo_compaction",
    "redo_compaction",
    "write_again",
    "stop_writing",
    "end_pause",
)


class CompactionDeeds(ReadOnlyAdmin):
    """Compact now, undo, redo, write again, stop, go on after an undo."""

    def has_govern_permission(self, request: HttpRequest) -> bool:
        """Allow policy administrators; a chat's policy may still refuse."""
        return person(request).has_perm(EDITS_POLICIES)

    def has_stop_permission(self, request: HttpRequest) -> bool:
        """Allow those who pay for the calls, or decide about them."""
        return self.has_govern_permission(request) or person(request).has_perm(OPERATES)

    @admin.action(description="Compact these chats now", permissions=["govern"])
    def compact_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Ask for a summary in the chats of these compactions."""
        user, now = person(request), timezone.now()
        return self.after_asking(
            request,
            chats_of(queryset),
            title="Compact now",
            sentence="A summary is asked for in the chats of these compactions, although their "
            "prompts are not full. It is written in the background.",
            deed=lambda chat: controls.compact_now(user=user, chat=chat, now=now),
            done="a summary was asked for.",
            name=chat_name,
        )

    @admin.action(description="Undo", permissions=["govern"])
    def undo_compaction(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Send what these summaries stand for again."""
        user, now = person(request), timezone.now()
        return self.after_asking(
            request,
            queryset,
            title="Undo",
            sentence="The next prompts have again what was in force before. Summaries by "
            "themselves pause in these chats.",
            deed=lambda row: undo.undo(user=user, compaction=row, now=now),
            done="undone.",
        )

    @admin.action(description="Redo", permissions=["govern"])
    def redo_compaction(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Put undone summaries in force again."""
        user, now = person(request), timezone.now()
        return self.after_asking(
            request,
            queryset,
            title="Redo",
            sentence="These summaries are sent again in place of their messages, and the pause "
            "ends.",
            deed=lambda row: undo.redo(user=user, compaction=row, now=now),
            done="in force again.",
        )

    @admin.action(description="Write again from the originals", permissions=["govern"])
    def write_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Ask for summaries in force to be written again."""
        user, now = person(request), timezone.now()
        return self.after_asking(
            request,
            queryset,
            title="Write again",
            sentence="Summaries in force are written again from their originals, by the model of "
            "their policy. The old ones stay readable.",
            deed=lambda row: controls.rerun(user=user, compaction=row, now=now),
            done="it was asked for.",
        )

    @admin.action(description="Stop what is being written", permissions=["stop"])
    def stop_writing(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Stop summaries that are being written."""
        user, now = person(request), timezone.now()
        return self.after_asking(
            request,
            queryset,
            title="Stop",
            sentence="Nothing changes but the record of the attempt.",
            deed=lambda row: controls.cancel(user=user, compaction=row, now=now),
            done="stopped.",
        )

    @admin.action(description="Let these chats go on after an undo", permissions=["govern"])
    def end_pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Let summaries be made by themselves again."""
        actor, now = actor_of(request), timezone.now()
        return self.after_asking(
            request,
            chats_of(queryset),
            title="Go on after an undo",
            sentence="Summaries are made by themselves again in the chats of these compactions.",
            deed=lambda chat: pauses.resume(chat=chat, actor=actor, now=now),
            done="goes on.",
            name=chat_name,
        )

    def after_asking(
        self,
        request: HttpRequest,
        rows: QuerySet[Any],
        *,
        title: str,
        sentence: str,
        deed: Callable[[Any], object],
        done: str,
        name: Callable[[Any], str] = str,
    ) -> HttpResponse | None:
        """Ask, then do it to each row; without rows there is nothing to do."""
        asked = confirmation(self, request, rows, title=title, sentence=sentence)
        if asked is None:
            each(self, request, rows, deed=deed, done=done, name=name)
        return asked


def chats_of(compactions: QuerySet[Compaction]) -> QuerySet[Chat]:
    """Return the chats of compactions, each once, without their titles."""
    rows = Chat.objects.filter(branches__compactions__in=compactions, deleted_at=None)
    return rows.only("pk").distinct()


def chat_name(chat: Chat) -> str:
    """Name a chat by its id; its title is content."""
    return f"Chat {chat.pk}"


def person(request: HttpRequest) -> User:
    """Return the person who asks; the site has made sure that there is one."""
    return cast(User, request.user)
