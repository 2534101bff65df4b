"""Admin actions on compactions, which owners find on the chat pages.

Each action requires confirmation. The domain checks the chat's policy, and each refusal gives its
reason.
"""

from typing import Any, cast

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from chats.admin.bases import ReadOnlyAdmin
from chats.admin.confirm import apply_confirmed
from chats.admin.site import get_request_actor
from chats.compaction import pauses
from chats.compaction.people import controls, undo
from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.models import Chat, Compaction

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
    """Actions: compact now, undo, redo, regenerate, cancel, resume after an undo."""

    def has_govern_permission(self, request: HttpRequest) -> bool:
        """Return True for policy administrators. A chat's policy may still refuse."""
        return get_request_user(request).has_perm(EDITS_POLICIES)

    def has_stop_permission(self, request: HttpRequest) -> bool:
        """Return True for operators, who pay for the calls, and for policy administrators."""
        return self.has_govern_permission(request) or get_request_user(request).has_perm(OPERATES)

    @admin.action(description=gettext_lazy("Compact these chats now"), permissions=["govern"])
    def compact_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Request a compaction of these chats, after confirmation."""
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            queryset,
            title=gettext("Compact now"),
            sentence=gettext(
                "Requests a summary for the chat of each selected compaction, even if its "
                "prompt is not full. The summaries are written in the background."
            ),
            action=lambda chat: controls.compact_now(user=user, chat=chat, now=now),
            done=gettext("Summary requested. It will be written in the background."),
            name=format_chat_name,
            targets=select_compacted_chats(queryset),
        )

    @admin.action(description=gettext_lazy("Undo compactions"), permissions=["govern"])
    def undo_compaction(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Undo the selected compactions, after confirmation.

        Prompts then contain the previous summary or the messages again.
        """
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            queryset,
            title=gettext("Undo compactions"),
            sentence=gettext(
                "The next prompts use the previous summary or the original messages again. "
                "Automatic compaction is paused in these chats."
            ),
            action=lambda row: undo.undo_summary(user=user, compaction=row, now=now),
            done=gettext("undone."),
        )

    @admin.action(description=gettext_lazy("Redo compactions"), permissions=["govern"])
    def redo_compaction(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Make undone summaries active again, after confirmation."""
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            queryset,
            title=gettext("Redo compactions"),
            sentence=gettext(
                "These summaries replace their messages in prompts again, and automatic "
                "compaction resumes."
            ),
            action=lambda row: undo.redo_summary(user=user, compaction=row, now=now),
            done=gettext("published again."),
        )

    @admin.action(
        description=gettext_lazy("Regenerate summaries from the originals"), permissions=["govern"]
    )
    def write_again(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Request the regeneration of each selected summary, after confirmation."""
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            queryset,
            title=gettext("Regenerate summaries"),
            sentence=gettext(
                "The policy’s model regenerates these summaries from the original messages. The "
                "old versions stay readable."
            ),
            action=lambda row: controls.request_summary_rerun(user=user, compaction=row, now=now),
            done=gettext("Regeneration of the summary requested."),
        )

    @admin.action(description=gettext_lazy("Cancel running summaries"), permissions=["stop"])
    def stop_writing(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Cancel the selected summaries that are being written, after confirmation."""
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            queryset,
            title=gettext("Cancel running summaries"),
            sentence=gettext(
                "Stops writing these summaries. Prompts do not change, and the attempts are "
                "recorded as cancelled."
            ),
            action=lambda row: controls.cancel_summary(user=user, compaction=row, now=now),
            done=gettext("cancelled."),
        )

    @admin.action(description=gettext_lazy("Resume automatic compaction"), permissions=["govern"])
    def end_pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Resume automatic compaction that an undo paused, after confirmation."""
        actor, now = get_request_actor(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            queryset,
            title=gettext("Resume automatic compaction"),
            sentence=gettext(
                "Ends the pause that followed an undo, so that summaries are written "
                "automatically again in these chats."
            ),
            action=lambda chat: pauses.resume_compaction(chat=chat, actor=actor, now=now),
            done=gettext("Automatic compaction resumed."),
            name=format_chat_name,
            targets=select_compacted_chats(queryset),
        )


def select_compacted_chats(compactions: QuerySet[Compaction]) -> QuerySet[Chat]:
    """Return the distinct chats of compactions, except deleted ones.

    Titles are content, so they are not loaded.
    """
    rows = Chat.objects.filter(branches__compactions__in=compactions, deleted_at=None)
    return rows.only("pk").distinct()


def format_chat_name(chat: Chat) -> str:
    """Return a chat's display name. The title is content, so it is not shown."""
    return gettext("Chat {id}").format(id=chat.pk)


def get_request_user(request: HttpRequest) -> User:
    return cast(User, request.user)
