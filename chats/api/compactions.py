"""The compactions of a chat: list, start, undo, redo, correct, approve."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api import examples
from chats.api.compaction_outputs import CompactionOut, CompactionsOut, ComparisonOut
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import CompareQuery, NewCompaction, Nothing, PageQuery, Rejection, Revision
from chats.api.outputs import BranchOut, one
from chats.api.pages import page_of
from chats.api.schema import READ_ERRORS, answers
from chats.compaction import pauses
from chats.compaction.coverage import active_branch
from chats.compaction.cursor import cursor_of
from chats.compaction.people import approve, controls, revise, undo
from chats.models import Compaction
from chats.record import access


class Compactions(Endpoint):
    """All compactions of a chat, on every branch."""

    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}

    @extend_schema(
        operation_id="chats_compactions_list",
        parameters=[PageQuery],
        responses=answers({200: CompactionsOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the compactions, newest first, with those that failed or were undone.

        `summarised` says how far the summaries of the active branch reach.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        query = PageQuery.read(request.query_params.dict())
        page = page_of(
            Compaction.objects.filter(branch__chat=chat),
            order=("-created_at", "-id"),
            name=f"compactions:{chat.pk}",
            **query,
        )
        found = {"data": page.rows, "next_cursor": page.next_cursor}
        return Response(
            one(CompactionsOut, {**found, "summarised": cursor_of(active_branch(chat))})
        )

    @extend_schema(
        operation_id="chats_compactions_create",
        request=NewCompaction,
        examples=examples.COMPACT_NOW,
        responses=answers({202: BranchOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Compact now, whatever the marks say. 202: written down for a worker.

        Several requests that no worker has begun are one; the newest counts. The branch's
        `compaction` changes, or the list shows why the attempt came to nothing.
        """
        chat = access.named_chat_for(user=person(request), chat_id=chat_id)
        wish = NewCompaction.read(request.data)
        branch = controls.compact_now(user=person(request), chat=chat, now=timezone.now(), **wish)
        return Response(one(BranchOut, branch), status=202)


class Resume(Endpoint):
    """The end of the pause that an undo began."""

    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(
        operation_id="chats_compactions_resume", request=None, responses=answers({200: BranchOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Let automatic compaction go on; repeating it changes nothing."""
        chat = access.named_chat_for(user=person(request), chat_id=chat_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        branch = pauses.resume(chat=chat, actor=actor, now=timezone.now())
        return Response(one(BranchOut, branch))


class Compare(Endpoint):
    """Two summaries side by side."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_compactions_compare",
        parameters=[CompareQuery],
        responses=answers({200: ComparisonOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Compare any two compactions of the chat, line by line."""
        chat = access.named_chat_for(user=person(request), chat_id=chat_id)
        query = CompareQuery.read(request.query_params.dict())
        found = revise.compare(
            user=person(request), chat_id=chat.pk, older_id=query["older"], newer_id=query["newer"]
        )
        return Response(one(ComparisonOut, found))


class OneCompaction(Endpoint):
    """One compaction."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_compactions_get",
        responses=answers({200: CompactionOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Read the compaction. Its originals are the chat's messages `from_seq` to `to_seq`."""
        found = access.compaction_for(
            user=person(request), chat_id=chat_id, compaction_id=compaction_id
        )
        return Response(one(CompactionOut, found))


class CompactionAction(Endpoint):
    """The base of actions on a compaction."""

    scopes: ClassVar = {"POST": "chats:write"}

    def compaction(
        self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID
    ) -> Compaction:
        """Return the compaction of the address. Raises `NotFound`."""
        return access.compaction_for(
            user=person(request), chat_id=chat_id, compaction_id=compaction_id
        )


class Cancel(CompactionAction):
    """The end of a running summary."""

    @extend_schema(
        operation_id="chats_compactions_cancel",
        request=None,
        responses=answers({200: CompactionOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Stop a summary that is being written."""
        row = self.compaction(request, chat_id, compaction_id)
        Nothing.read(request.data)
        stopped = controls.cancel(user=person(request), compaction=row, now=timezone.now())
        return Response(one(CompactionOut, stopped))


class Undo(CompactionAction):
    """The undo of a summary in force."""

    @extend_schema(
        operation_id="chats_compactions_undo", request=None, responses=answers({200: CompactionOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Send again what the summary in force displaced; automatic compaction pauses.

        Repeating it changes nothing. 409 with the numbers when the originals do not fit.
        """
        row = self.compaction(request, chat_id, compaction_id)
        Nothing.read(request.data)
        undone = undo.undo(user=person(request), compaction=row, now=timezone.now())
        return Response(one(CompactionOut, undone))


class Redo(CompactionAction):
    """The redo of an undone summary."""

    @extend_schema(
        operation_id="chats_compactions_redo", request=None, responses=answers({200: CompactionOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Put an undone summary in force again; repeating it changes nothing."""
        row = self.compaction(request, chat_id, compaction_id)
        Nothing.read(request.data)
        redone = undo.redo(user=person(request), compaction=row, now=timezone.now())
        return Response(one(CompactionOut, redone))


class Rerun(CompactionAction):
    """Another summary of the same messages."""

    @extend_schema(
        operation_id="chats_compactions_rerun",
        request=NewCompaction,
        examples=examples.RERUN,
        responses=answers({202: BranchOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Write the summary in force again from its originals. 202: written down for a worker.

        The new one takes its place; the old one stays readable.
        """
        row = self.compaction(request, chat_id, compaction_id)
        wish = NewCompaction.read(request.data)
        branch = controls.rerun(user=person(request), compaction=row, now=timezone.now(), **wish)
        return Response(one(BranchOut, branch), status=202)


class Revise(CompactionAction):
    """A correction of a summary by a person."""

    @extend_schema(
        operation_id="chats_compactions_revise",
        request=Revision,
        examples=examples.REVISE,
        responses=answers({200: CompactionOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Correct the summary in force: a new one, which names the old one in `revises`.

        The same text again changes nothing.
        """
        row = self.compaction(request, chat_id, compaction_id)
        text = Revision.read(request.data)["text"]
        new = revise.revise(user=person(request), compaction=row, text=text, now=timezone.now())
        return Response(one(CompactionOut, new))


class Approve(CompactionAction):
    """The approval of a waiting summary."""

    @extend_schema(
        operation_id="chats_compactions_approve",
        request=None,
        responses=answers({200: CompactionOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Put a waiting summary in force."""
        row = self.compaction(request, chat_id, compaction_id)
        Nothing.read(request.data)
        approved = approve.approve(user=person(request), compaction=row, now=timezone.now())
        return Response(one(CompactionOut, approved))


class Reject(CompactionAction):
    """The rejection of a waiting summary."""

    @extend_schema(
        operation_id="chats_compactions_reject",
        request=Rejection,
        examples=examples.REJECT,
        responses=answers({200: CompactionOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Refuse a waiting summary; nothing that is sent changes."""
        row = self.compaction(request, chat_id, compaction_id)
        reason = Rejection.read(request.data)["reason"]
        rejected = approve.reject(
            user=person(request), compaction=row, reason=reason, now=timezone.now()
        )
        return Response(one(CompactionOut, rejected))
