"""The legacy completions endpoint: the prompt is the only user message of a chat completion.

Few providers still offer this endpoint, and the policies, summaries and receipts of chats apply to
messages. Requests that cannot be expressed as a message are refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

from django.http import HttpRequest, HttpResponseBase

from chats.gateway import body, choice, logprobs, parameters, request_types, wire
from chats.gateway.chat_completions import views
from chats.gateway.chat_completions.views import gateway
from chats.gateway.errors import InvalidRequest
from chats.gateway.logprobs import Logprobs
from chats.gateway.matching import identity
from chats.gateway.matching.conversation import Conversation, Item
from chats.ground.refusals import Refusal
from chats.models import ApiKey, PassedOn
from contextpolicy.engine.messages.messages import TextPart

# Fields that are refused unless they have one of these values, which change nothing.
NOT_HERE: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "best_of": ("Each request returns one completion.", (None, 1)),
    "functions": ("Use /v1/chat/completions.", (None,)),
    "messages": ("Use prompt, or /v1/chat/completions.", (None,)),
    "suffix": ("Text cannot be inserted before another text.", (None, "")),
    "tool_choice": ("Use /v1/chat/completions.", (None,)),
    "tools": ("Use /v1/chat/completions.", (None, [])),
    "top_logprobs": ("Use logprobs.", (None,)),
}
OWN = frozenset({"echo", "logprobs", "prompt", *NOT_HERE})


@gateway("POST")
def completions(request: HttpRequest, key: ApiKey) -> HttpResponseBase:
    """Complete a prompt, in one response or as a stream.

    Raises the errors of parsing the body, choosing the model and
    `append_request.place_request`.
    """
    sent = body.parse_gateway_body(cast(IO[bytes], request))
    refuse_completion_fields(sent)
    prompt = parse_prompt(sent)
    is_echoed = body.parse_bool_field(sent, "echo")
    count = logprobs.parse_logprob_count(sent, "logprobs")
    asked = body.validate_chat_fields(
        {
            **{n: said for n, said in sent.items() if n not in OWN},
            **({} if count is None else logprobs.build_logprob_fields(count or None)),
        }
    )
    said = Conversation((), (Item("user", (TextPart(prompt),)),))
    read_request = request_types.Sent(
        user=key.owner,
        api_key=key,
        wanted=choice.resolve_model_name(asked.model, user=key.owner),
        conversation=said,
        identity=identity.parse_identity(request.headers, sent),
        client=views.build_client_fields(said, asked=asked),
        keyed=views.build_idempotent_request(request, sent, user=key.owner),
        field="prompt",
    )

    def form(place: views.ReplyPlace) -> TextChunks:
        return TextChunks(
            id=f"cmpl-{place.id.hex}",
            model=asked.model,
            created=place.created,
            include_usage=asked.include_usage,
            echo=prompt if is_echoed else "",
            has_top=bool(count),
        )

    return views.reply_to_request(
        request, sent=read_request, asked=asked, form=form, kind=PassedOn.Kind.CHAT
    )


def refuse_completion_fields(sent: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` for fields that a chat completion cannot express."""
    for name, (why, harmless) in NOT_HERE.items():
        said = sent.get(name)
        if isinstance(said, bool) or said not in harmless:
            problem = f"{name} is not supported in /v1/completions. {why}"
            raise InvalidRequest(problem, param=name, code="unsupported_parameter")
    body.refuse_unsupported_fields(
        {name: said for name, said in sent.items() if name not in OWN},
        known=OWN | body.OWN | parameters.CHAT,
    )


def parse_prompt(sent: Mapping[str, Any]) -> str:
    """Return the prompt, sent as a string or a list of one string. Raises `InvalidRequest`."""
    value = sent.get("prompt")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value in (None, "", []):
        raise InvalidRequest("Send the prompt.", param="prompt", code="missing_field")
    if not isinstance(value, str):
        problem = "prompt must be a text, or a list of one text. Send a request for each text. "
        problem += "Tokens are not supported."
        raise InvalidRequest(problem, param="prompt", code="unsupported_content")
    return value


@dataclass(slots=True, kw_only=True)
class TextChunks:
    """The format of one completion.

    `echo` is the prompt, if the response repeats it before the completion. `has_top` is
    True if the log probabilities include those of the most likely tokens.
    """

    id: str
    model: str
    created: int
    include_usage: bool
    echo: str = ""
    has_top: bool = False

    def opening(self) -> str:
        return self.text(self.echo) if self.echo else ""

    def text(self, text: str, found: Logprobs = ()) -> str:
        usage_field = {"usage": None} if self.include_usage else {}
        told = build_text_choice(text, found=self.logprobs(found))
        return wire.format_stream_event({**self.frame(), "choices": [told], **usage_field})

    def logprobs(self, found: Logprobs | None) -> dict[str, Any] | None:
        """Return log probabilities positioned in the whole text, including the echoed prompt."""
        return logprobs.build_text_logprobs(found, offset=len(self.echo), has_top=self.has_top)

    def thoughts(self, text: str) -> str:
        """Return an empty string, because this format has no reasoning."""
        del text
        return ""

    def ending(self, reply: wire.Reply) -> str:
        """Return the finish reason, the usage if requested, and the end marker of the stream."""
        last = build_text_choice("", finish=reply.finish)
        usage_field = {"usage": None} if self.include_usage else {}
        pieces = wire.format_stream_event({**self.frame(), "choices": [last], **usage_field})
        if self.include_usage:
            usage = wire.format_chat_usage(reply.usage)
            pieces += wire.format_stream_event({**self.frame(), "choices": [], "usage": usage})
        return pieces + wire.DONE

    def whole(self, reply: wire.Reply) -> str:
        found = self.logprobs(reply.logprobs)
        told = build_text_choice(self.echo + reply.text, finish=reply.finish, found=found)
        usage = wire.format_chat_usage(reply.usage)
        return json.dumps({**self.frame(), "choices": [told], "usage": usage})

    def broken(self, refusal: Refusal) -> str:
        return wire.format_stream_event(wire.format_openai_error(refusal))

    def frame(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
        }


def build_text_choice(
    text: str, *, finish: str | None = None, found: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a completion choice, or a chunk of one. `found`: its log probabilities."""
    return {"index": 0, "text": text, "logprobs": found, "finish_reason": finish}
