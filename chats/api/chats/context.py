"""Context previews of the next message, and the receipts of a turn with their texts."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, cast

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.message_inputs import WithUploads
from chats.api.core.base import Endpoint, get_request_user
from chats.api.core.inputs import Flag, PlainText, Strict
from chats.api.core.outputs import serialize_row
from chats.api.core.receipt_outputs import ReceiptOut, SegmentOut
from chats.models import Receipt
from chats.prompt import sent_texts
from chats.prompt.agents import load_agent_view
from chats.prompt.next_context import NextContext, NextQuestion, compose_next_context
from chats.record import access
from contextpolicy.engine.messages.openai_chat import format_chat_messages
from contextpolicy.engine.policy.budget import Budget
from contextpolicy.resolution import load_policy_values

FORMS = ("sent", "messages", "text")
HELP = (
    "`sent`: the exact messages that the model would receive, in the policy's layout. "
    "`messages`: system text (if requested), summary, pinned messages, recent messages with "
    "their roles, state and retrieved context, then the question. `text`: the same content as a "
    "single string without the question. `messages` and `text` leave out tool calls and "
    "their results."
)
WITH_SYSTEM = (
    "True: include the system text. Ignored if `form` is `sent`, which always includes it."
)


class ContextQuery(Strict):
    """The format of the preview."""

    form = serializers.ChoiceField(choices=FORMS, default="sent", help_text=HELP)
    include_system = serializers.BooleanField(default=False, help_text=WITH_SYSTEM)


class NextMessage(WithUploads):
    """A question for a context preview with its files, and the format of the response."""

    question = PlainText(
        default="",
        help_text="Text of the next message. Empty without `files`: the prompt is composed "
        "without a question.",
    )
    form = serializers.ChoiceField(choices=FORMS, default="sent", help_text=HELP)
    include_system = Flag(default=False, help_text=WITH_SYSTEM)


class SegmentTextOut(SegmentOut):
    """A segment of a prompt, with its text."""

    text = serializers.CharField(
        help_text="Text of the segment. Empty if it was erased or the policy hides it."
    )
    hidden = serializers.BooleanField(
        help_text=(
            "True: the policy hides this system text, agent instruction or team task, so `text` "
            "is empty."
        )
    )


class SentReceiptOut(ReceiptOut):
    """The receipt of a model call, with the text of each segment."""

    segments = SegmentTextOut(
        many=True, help_text="Segments of the prompt, in the order in which they were sent."
    )


class SentReceiptsOut(serializers.Serializer[Any]):
    """The receipts of a turn, in the order of its model calls."""

    data = SentReceiptOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class ContextOut(serializers.Serializer[Any]):
    """Preview of the next prompt, with its token counts."""

    form = serializers.ChoiceField(
        choices=FORMS, help_text="Format as requested: `sent`, `messages` or `text`."
    )
    model = serializers.CharField(help_text="Id of the model.")
    policy = serializers.CharField(
        help_text="Digest of the effective policy. Equal digests mean equal values and sources."
    )
    strategy = serializers.CharField(help_text="Strategy of the policy, such as `dynamic_summary`.")
    layout = serializers.CharField(help_text="Prompt layout, which the policy sets.")
    messages = serializers.ListField(
        child=serializers.DictField(),
        allow_null=True,
        help_text="Messages of the prompt. Null if `form` is `text`.",
    )
    text = serializers.CharField(
        allow_null=True, help_text="Prompt as a single string. Null unless `form` is `text`."
    )
    system_hidden = serializers.BooleanField(
        help_text=(
            "True: the policy hides its system text, which is then empty in `sent` and left out "
            "of the other formats."
        )
    )
    segments = SegmentTextOut(
        many=True, help_text="Segments of the prompt, with their text and sizes."
    )
    left_out = serializers.ListField(
        child=serializers.ListField(),
        help_text=(
            "Ranges of messages left out of the prompt, each as [first sequence number, last "
            "sequence number, reason]."
        ),
    )
    tokens = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=(
            "Number of tokens in each part of the prompt: an estimate of the provider's counts."
        ),
    )
    prompt_tokens = serializers.IntegerField(
        help_text="Number of tokens in the complete prompt, as counted by the local tokenizer."
    )
    approximate = serializers.BooleanField(
        help_text=(
            "True: the token counts are estimates, because the tokenizer is still loading. "
            "False: the receipt of the next message will have the same counts."
        )
    )
    budget = serializers.DictField(
        help_text=(
            "Token limits of the prompt, and the tokens that each part uses. `token_budget`, "
            "`reserve` and `prompt_limit` are in provider tokens; the others are in tokens of "
            "the local tokenizer. `calibration` is the ratio of provider tokens to local tokens, "
            "and `limit` is `prompt_limit` divided by it."
        )
    )
    notes = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "Codes for changes that were made to the prompt, and for reasons why context is "
            "missing."
        ),
    )
    missed_search = serializers.CharField(
        help_text=(
            "Reason why the search for retrieved context did not finish for the last reply. `late` "
            "or `breaker`: not searched, because the server was busy. `failed`: the search failed. "
            "Empty: the search finished, or none was needed."
        )
    )


def serialize_text_segment(
    segment: Sequence[object], *, sent: sent_texts.SentText
) -> dict[str, Any]:
    return {**serialize_row(SegmentOut, segment), "text": sent.text, "hidden": sent.hidden}


def serialize_context(made: NextContext, *, form: str, include_system: bool) -> dict[str, Any]:
    found = made.outlook
    values = found.choice.values
    budget: Budget = found.sent.budget
    messages: Sequence[Mapping[str, object]] | None = None
    if form == "sent":
        messages = format_chat_messages(made.messages())
    elif form == "messages":
        messages = format_chat_messages(made.as_messages(include_system=include_system))
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
            serialize_text_segment(segment, sent=find_segment_text(segment, made=made))
            for segment in made.segments
        ],
        "left_out": [[out.from_seq, out.to_seq, out.reason] for out in found.sent.left_out],
        "tokens": dict(found.tokens),
        "prompt_tokens": found.sent.prompt_tokens,
        "approximate": found.is_estimate,
        "budget": {name: getattr(budget, name) for name in budget.__slots__},
        "notes": list(made.notes),
        "missed_search": made.missed_search,
    }


def find_segment_text(segment: Sequence[object], *, made: NextContext) -> sent_texts.SentText:
    """Return the text of a segment. The question is not stored: its text comes from the preview."""
    if segment[0] == "question":
        text = sent_texts.format_wire_messages(made.question)
        return sent_texts.SentText(text, len(text))
    values = made.outlook.choice.values
    return sent_texts.recreate_sent_text(segment, sources=made.sources, values=values)


class ContextViewSet(Endpoint):
    serializer_class = ContextOut
    write_scope = "chats:read"
    repeatable = ("create",)

    @extend_schema(summary="Preview the next prompt", parameters=[ContextQuery])
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Preview the next prompt of a chat, without a new message.

        Nothing is stored, and no model is called. Raises the errors of `compose_next_context`.
        """
        return self.answer(request, chat_id, ContextQuery.read(request.query_params.dict()))

    @extend_schema(
        operation_id="chats_context_ask",
        summary="Preview the prompt for a question",
        request=NextMessage,
        responses={200: ContextOut},
    )
    def create(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Preview the prompt for a question and its uploaded files.

        Files are refused with the same error codes as when you send a message. Excerpts of long
        documents are chosen when the message is sent, so they are not part of the preview. Nothing
        is stored, and no model is called. Raises the errors of `compose_next_context`.
        """
        return self.answer(request, chat_id, NextMessage.read(request.data))

    def answer(self, request: Request, chat_id: uuid.UUID, asked: Mapping[str, Any]) -> Response:
        """Return the preview as a response.

        Raises `NotFound` and the errors of `compose_next_context`.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        question = NextQuestion(
            str(asked.get("question", "")),
            asked.get("files", ()),
            unread=bool(asked.get("allow_unread")),
        )
        made = compose_next_context(
            chat=chat, user=get_request_user(request), question=question, now=timezone.now()
        )
        form, include_system = str(asked["form"]), bool(asked["include_system"])
        return Response(serialize_context(made, form=form, include_system=include_system))


class ReceiptViewSet(Endpoint):
    @extend_schema(summary="List receipts of a turn", responses=SentReceiptsOut)
    @action(detail=False)
    def receipts(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """List the receipts of a turn, in the order of its model calls.

        Each receipt contains the segments of the prompt with their text.
        """
        turn = access.get_turn(user=self.user, chat_id=chat_id, turn_id=turn_id)
        rows = list(
            Receipt.objects.filter(turn=turn)
            .select_related("effective_policy")
            .order_by("attempt", "step", "call")
        )
        found = sent_texts.load_receipt_sources(rows)
        sources = sent_texts.SegmentSources(found.texts, found.messages, load_agent_view(turn))
        return Response({"data": [serialize_receipt(row, sources=sources) for row in rows]})


def serialize_receipt(row: Receipt, *, sources: sent_texts.SegmentSources) -> dict[str, Any]:
    """Return a receipt with the text of each segment."""
    values, sources = load_policy_values(row.effective_policy), sources.with_notes(row.notes)
    told = [
        serialize_text_segment(
            segment, sent=sent_texts.recreate_sent_text(segment, sources=sources, values=values)
        )
        for segment in cast(Sequence[Sequence[object]], row.segments)
    ]
    return {**serialize_row(ReceiptOut, row), "segments": told}
