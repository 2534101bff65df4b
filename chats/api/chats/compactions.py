"""Compactions of a chat: list, start, undo, redo, correct, approve."""

import uuid

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.chat_outputs import BranchOut
from chats.api.chats.compaction_inputs import CompareQuery, NewCompaction, Rejection, Revision
from chats.api.chats.compaction_outputs import CompactionOut, CompactionsOut, ComparisonOut
from chats.api.core import examples
from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import serialize_row
from chats.api.core.pages import paginate_rows
from chats.compaction import pauses
from chats.compaction.coverage import load_locked_active_branch
from chats.compaction.cursor import get_summary_cursor
from chats.compaction.people import approve, controls, revise, undo
from chats.models import Compaction
from chats.record import access


class CompactionViewSet(Endpoint):
    """The compactions of a chat, on every branch."""

    serializer_class = CompactionOut
    lookup_url_kwarg = "compaction_id"

    def get_object(self) -> Compaction:
        """Return the compaction in the URL. Raises `NotFound`."""
        return access.get_compaction(user=self.user, **self.kwargs)

    @extend_schema(summary="List compactions", parameters=[PageQuery], responses=CompactionsOut)
    def list(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the compactions of all branches, newest first, including failed and undone ones.

        `summarised` contains the last message that the active summary of the active branch covers.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        query = PageQuery.read(request.query_params.dict())
        page = paginate_rows(
            Compaction.objects.filter(branch__chat=chat),
            order=("-created_at", "-id"),
            name=f"compactions:{chat.pk}",
            **query,
        )
        found = {"data": page.rows, "next_cursor": page.next_cursor}
        return Response(
            serialize_row(
                CompactionsOut,
                {**found, "summarised": get_summary_cursor(load_locked_active_branch(chat))},
            )
        )

    @extend_schema(
        summary="Compact a chat now",
        request=NewCompaction,
        examples=examples.COMPACT_NOW,
        responses={202: BranchOut},
    )
    def create(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Request a compaction now, regardless of the policy's thresholds.

        Returns 202 with the branch; a worker starts the compaction. Requests that no worker has
        started yet are merged; the newest one applies. Once the summary is active, `compaction` of
        the branch contains its id. If the attempt fails, the list of compactions gives the reason.
        """
        chat = access.get_chat_with_model(user=self.user, chat_id=chat_id)
        wish = NewCompaction.read(request.data)
        branch = controls.compact_now(user=self.user, chat=chat, now=timezone.now(), **wish)
        return Response(serialize_row(BranchOut, branch), status=202)

    @extend_schema(summary="Get a compaction")
    def retrieve(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Retrieve a compaction. Its originals are the messages `from_seq` to `to_seq`."""
        found = access.get_compaction(user=self.user, chat_id=chat_id, compaction_id=compaction_id)
        return self.respond(found)

    @extend_schema(summary="Resume automatic compaction", responses=BranchOut)
    @action(detail=False, methods=["post"])
    def resume(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Resume automatic compaction on the active branch. Repeating the request has no effect."""
        chat = access.get_chat_with_model(user=self.user, chat_id=chat_id)
        EmptyBody.read(request.data)
        branch = pauses.resume_compaction(chat=chat, actor=self.actor, now=timezone.now())
        return Response(serialize_row(BranchOut, branch))

    @extend_schema(
        summary="Compare two compactions", parameters=[CompareQuery], responses=ComparisonOut
    )
    @action(detail=False)
    def compare(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Compare the text of any two compactions in a chat, line by line."""
        chat = access.get_chat_with_model(user=self.user, chat_id=chat_id)
        query = CompareQuery.read(request.query_params.dict())
        found = revise.compare_summaries(
            user=self.user, chat_id=chat.pk, older_id=query["older"], newer_id=query["newer"]
        )
        return Response(serialize_row(ComparisonOut, found))

    @extend_schema(summary="Cancel a compaction")
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Cancel a compaction while its summary is being written. The prompt does not change.

        Returns 409 `not_being_written` once the compaction has ended.
        """
        row = self.get_object()
        EmptyBody.read(request.data)
        stopped = controls.cancel_summary(user=self.user, compaction=row, now=timezone.now())
        return self.respond(stopped)

    @extend_schema(summary="Undo a compaction")
    @action(detail=True, methods=["post"])
    def undo(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Restore the messages or the summary that the active summary replaced.

        Automatic compaction pauses until you resume it, the pause set by the policy ends, or the
        prompt no longer fits. Repeating the request has no effect. Returns 409 `undo_does_not_fit`,
        with the token counts, if the prompt would exceed its limit.
        """
        row = self.get_object()
        EmptyBody.read(request.data)
        return self.respond(undo.undo_summary(user=self.user, compaction=row, now=timezone.now()))

    @extend_schema(summary="Redo a compaction")
    @action(detail=True, methods=["post"])
    def redo(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Make an undone summary active again. Repeating the request has no effect.

        This also resumes automatic compaction, which the undo paused.
        Returns 409 `nothing_to_redo` if the summary was not undone, or if another summary has
        become active.
        """
        row = self.get_object()
        EmptyBody.read(request.data)
        return self.respond(undo.redo_summary(user=self.user, compaction=row, now=timezone.now()))

    @extend_schema(
        summary="Regenerate a summary",
        request=NewCompaction,
        examples=examples.RERUN,
        responses={202: BranchOut},
    )
    @action(detail=True, methods=["post"])
    def rerun(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Regenerate the active summary from its original messages.

        Returns 202 with the branch; a worker starts the compaction. Once the new summary is
        written and valid, it replaces the active one. The old summary stays readable.
        """
        row = self.get_object()
        wish = NewCompaction.read(request.data)
        branch = controls.request_summary_rerun(
            user=self.user, compaction=row, now=timezone.now(), **wish
        )
        return Response(serialize_row(BranchOut, branch), status=202)

    @extend_schema(summary="Correct a summary", request=Revision, examples=examples.REVISE)
    @action(detail=True, methods=["post"])
    def revise(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Replace the active summary with corrected text.

        The result is a new compaction. Its `revises` field contains the id of the old one. Sending
        the current text again has no effect.
        """
        row = self.get_object()
        text = Revision.read(request.data)["text"]
        new = revise.revise_summary(user=self.user, compaction=row, text=text, now=timezone.now())
        return self.respond(new)

    @extend_schema(summary="Approve a summary")
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Approve a pending summary. It becomes active, and later prompts contain it.

        Returns 409 `draft_overtaken` if the chat has changed and the summary cannot be used any
        more. Returns 409 `not_waiting` if the summary is no longer pending.
        """
        row = self.get_object()
        EmptyBody.read(request.data)
        approved = approve.approve_summary(user=self.user, compaction=row, now=timezone.now())
        return self.respond(approved)

    @extend_schema(summary="Reject a summary", request=Rejection, examples=examples.REJECT)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Reject a pending summary. The prompt does not change.

        The summary stays readable. Returns 409 `not_waiting` if the summary is no longer pending.
        """
        row = self.get_object()
        reason = Rejection.read(request.data)["reason"]
        rejected = approve.reject_summary(
            user=self.user, compaction=row, reason=reason, now=timezone.now()
        )
        return self.respond(rejected)
