"""The context of the next message, and what was sent for a turn, each with its texts."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Flag, PlainText, Strict
from chats.api.outputs import one
from chats.api.receipt_outputs import ReceiptOut, SegmentOut
from chats.api.schema import READ_ERRORS, answers
from chats.models import Receipt
from chats.prompt import sent_texts
from chats.prompt.agents import view_for
from chats.prompt.next_context import NextContext, next_context
from chats.record import access
from contextpolicy.engine.budget import Budget
from contextpolicy.engine.chatmessages import to_chat_messages
from contextpolicy.resolution import values_of

FORMS = ("sent", "messages", "text")
HELP = (
    "`sent`: the messages exactly as the model would get them, in the layout of the policy."
    " `messages`: system text (if asked for), summary, pins, the recent messages in their roles,"
    " what is known beside them, and the question alone. `text`: the same as one text."
)
WITH_SYSTEM = "With the system text; of no effect on `sent`, which always has it."


class ContextQuery(Strict):
    """The form in which the context is asked for."""

    form = serializers.ChoiceField(choices=FORMS, default="sent", help_text=HELP)
    include_system = serializers.BooleanField(default=False, help_text=WITH_SYSTEM)


class NextMessage(Strict):
    """A message that is not sent, and the form in which its context is asked for."""

    question = PlainText(default="", help_text="Empty: the context without a question.")
    form = serializers.ChoiceField(choices=FORMS, default="sent", help_text=HELP)
    include_system = Flag(default=False, help_text=WITH_SYSTEM)


class SegmentTextOut(SegmentOut):
    """One part of a prompt, with its text."""

    text = serializers.CharField(help_text="Empty: it is no longer stored, or hidden.")
    hidden = serializers.BooleanField(help_text="The policy hides this part of the system text.")


class SentReceiptOut(ReceiptOut):
    """The record of one model call, with the text of each part."""

    segments = SegmentTextOut(many=True, help_text="The parts of the prompt, in its order.")


class SentReceiptsOut(serializers.Serializer[Any]):
    """The receipts of a turn."""

    data = SentReceiptOut(many=True)  # type: ignore[assignment]  # the base has another


class ContextOut(serializers.Serializer[Any]):
    """The prompt of the next message, and the account of it."""

    form = serializers.ChoiceField(choices=FORMS)
    model = serializers.CharField(help_text="The id of the model.")
    policy = serializers.CharField(help_text="The digest of the effective policy.")
    strategy = serializers.CharField()
    layout = serializers.CharField()
    messages = serializers.ListField(
        child=serializers.DictField(), allow_null=True, help_text="Null in the form `text`."
    )
    text = serializers.CharField(allow_null=True, help_text="Null but in the form `text`.")
    system_hidden = serializers.BooleanField(
        help_text="The policy hides its system text: `sent` has it empty, the others leave it out."
    )
    segments = SegmentTextOut(many=True, help_text="The parts of what is sent, with their sizes.")
    left_out = serializers.ListField(
        child=serializers.ListField(), help_text="[[from seq, to seq, reason], …]"
    )
    tokens = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="By part, as the provider is expected to count.",
    )
    prompt_tokens = serializers.IntegerField(help_text="Of all that is sent, in our count.")
    budget = serializers.DictField()
    notes = serializers.ListField(child=serializers.CharField())


def with_text(segment: Sequence[object], *, sent: sent_texts.SentText) -> dict[str, Any]:
    """Return a segment with its text."""
    return {**one(SegmentOut, segment), "text": sent.text, "hidden": sent.hidden}


def context_json(made: NextContext, *, form: str, include_system: bool) -> dict[str, Any]:
    """Return a context in the form that was asked for, with all that is known of it."""
    found = made.outlook
    values = found.choice.values
    budget: Budget = found.sent.budget
    messages: Sequence[Mapping[str, object]] | None = None
    if form == "sent":
        messages = to_chat_messages(made.messages())
    elif form == "messages":
        messages = to_chat_messages(made.as_messages(include_system=include_system))
    return {
        "form": form,
        "model": found.choice.model.slug,
        "policy": found.choice.effective.digest,
        "strategy": values.strategy,
        "layout": values.layout,
        "messages": messages,
        "text": made.as_text(include_system=include_system) if form == "text" else None,
        "system_hidden": made.hides_system,
        "segments": [
            with_text(
                segment,
                sent=sent_of(segment, made=made),
            )
            for segment in made.segments
        ],
        "left_out": [[out.from_seq, out.to_seq, out.reason] for out in found.sent.left_out],
        "tokens": dict(found.tokens),
        "prompt_tokens": found.sent.prompt_tokens,
        "budget": {name: getattr(budget, name) for name in budget.__slots__},
        "notes": list(made.notes),
    }


def sent_of(segment: Sequence[object], *, made: NextContext) -> sent_texts.SentText:
    """Return the text of a segment; the question is not stored anywhere."""
    if segment[0] == "question":
        return sent_texts.SentText(made.question, len(made.question))
    values = made.outlook.choice.values
    return sent_texts.sent_text(segment, sources=made.sources, values=values)


class Context(Endpoint):
    """The context of the next message."""

    knows_repetitions = True
    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:read"}

    @extend_schema(
        operation_id="chats_context_get",
        parameters=[ContextQuery],
        responses=answers({200: ContextOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read what the next message would send beside itself; nothing is stored.

        Raises what `next_context` raises.
        """
        return self.answer(request, chat_id, ContextQuery.read(request.query_params.dict()))

    @extend_schema(
        operation_id="chats_context_ask",
        request=NextMessage,
        responses=answers({200: ContextOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read what this question would send; nothing is stored, and no model is asked.

        Raises what `next_context` raises.
        """
        return self.answer(request, chat_id, NextMessage.read(request.data))

    def answer(self, request: Request, chat_id: uuid.UUID, asked: Mapping[str, Any]) -> Response:
        """Return the context as asked. Raises `NotFound` and what `next_context` raises."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        question = str(asked.get("question", ""))
        made = next_context(chat=chat, question=question, now=timezone.now())
        form, include_system = str(asked["form"]), bool(asked["include_system"])
        return Response(context_json(made, form=form, include_system=include_system))


class TurnReceipts(Endpoint):
    """The receipts of a turn, with their texts."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_turns_receipts",
        responses=answers({200: SentReceiptsOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Read what each model call of the turn was sent, part by part, in words."""
        turn = access.turn_for(user=person(request), chat_id=chat_id, turn_id=turn_id)
        rows = list(
            Receipt.objects.filter(turn=turn)
            .select_related("effective_policy")
            .order_by("attempt", "step", "call")
        )
        found = sent_texts.sources_of(rows)
        sources = sent_texts.SegmentSources(found.texts, found.messages, view_for(turn))
        return Response({"data": [receipt_json(row, sources=sources) for row in rows]})


def receipt_json(row: Receipt, *, sources: sent_texts.SegmentSources) -> dict[str, Any]:
    """Return a receipt with the text of each part."""
    values = values_of(row.effective_policy)
    told = [
        with_text(segment, sent=sent_texts.sent_text(segment, sources=sources, values=values))
        for segment in cast(Sequence[Sequence[object]], row.segments)
    ]
    return {**one(ReceiptOut, row), "segments": told}
