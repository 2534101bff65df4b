"""Decides whether a request is passed through, depending on its API key, the policy or a header.

If the policy does not allow pass-through, such a request is refused. Storing its text without
notice would be worse than refusing it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from chats.gateway.body import RequestFields
from chats.gateway.choice import choose_with_key_policy
from chats.gateway.errors import ChatKeepsItsMessages, InvalidRequest, OptOutNotAllowed
from chats.gateway.request_types import Sent
from chats.models import Chat, PassedOn, ProviderAccount
from chats.prompt import model_choice

POLICY, DRY_RUN = "X-Context-Policy", "X-Context-Dry-Run"
NO_KEY = "Use an API key that is not set to pass requests through."
NO_HEADER = f"Send it without {POLICY}."


@dataclass(frozen=True, slots=True)
class RequestRoute:
    """The model and policy of a request, and whether it is passed through.

    `why` is the reason for pass-through. If it is empty, the request gets a chat.
    """

    choice: model_choice.ChosenModel
    why: str = ""


def route_request(headers: Mapping[str, str], *, sent: Sent) -> RequestRoute:
    """Return the route of a request.

    Raises the errors of `model_choice.choose_chat_model`, `InvalidRequest`, `OptOutNotAllowed` and
    `ChatKeepsItsMessages`.
    """
    by_header = is_off(headers)
    named = sent.wanted.chat is not None or sent.wanted.policy is not None
    choice = choose_with_key_policy(build_probe_chat(sent), named=named)
    allowed = choice.values.unmanaged
    if allowed == "all":
        why = PassedOn.Why.POLICY
    elif sent.api_key.unmanaged:
        why = PassedOn.Why.KEY
        if allowed == "none":
            raise OptOutNotAllowed(policy=choice.effective.label, advice=NO_KEY)
    elif by_header:
        why = PassedOn.Why.HEADER
        if allowed != "asked":
            raise OptOutNotAllowed(policy=choice.effective.label, advice=NO_HEADER)
    else:
        return RequestRoute(choice)
    if sent.wanted.chat is not None or sent.end is not None:
        raise ChatKeepsItsMessages
    return RequestRoute(choice, why)


def check_system_only(sent: Sent, *, way: RequestRoute) -> None:
    """Raise `InvalidRequest` for a system text without messages if the prompt would be empty."""
    if not sent.conversation.items[-1].is_no_question:
        return
    if sent.wanted.chat is not None:
        problem = "A request that names a chat needs a user message."
        raise InvalidRequest(problem, param=sent.field, code="missing_field")
    if not way.why and way.choice.values.chat_system == "ignore":
        problem = f"The policy {way.choice.effective.label} ignores the system texts of requests. "
        problem += "Send a user message."
        raise InvalidRequest(problem, param=sent.field, code="system_text_ignored")


def check_prefill(sent: Sent, *, asked: RequestFields, way: RequestRoute) -> None:
    """Raise `InvalidRequest` if the last message is a reply that the model cannot continue.

    Anthropic's API continues a reply, except with thinking. For other servers, the client
    must request it with `prefix` or `continue_final_message`, depending on the server.
    """
    if not sent.conversation.prefill:
        return
    model = way.choice.model
    kind = model_choice.get_available_account(model).kind
    is_requested = (
        sent.conversation.is_marked or asked.parameters.get("continue_final_message") is True
    )
    is_anthropic = kind == ProviderAccount.Kind.ANTHROPIC
    if not (model.thinking == "" if is_anthropic else is_requested):
        problem = (
            "The last message is a reply, and this model is not known to continue one. End with "
        )
        problem += "a user message or a tool result. If the server can continue a reply, set "
        problem += (
            "continue_final_message (vLLM, SGLang), or prefix in the message (DeepSeek, Mistral)."
        )
        raise InvalidRequest(problem, param=sent.field, code="unsupported_content")


def check_logprobs(*, asked: RequestFields, way: RequestRoute) -> None:
    """Raise `InvalidRequest` if log probabilities are requested and the provider's API has none."""
    if not asked.logprobs_field:
        return
    kind = model_choice.get_available_account(way.choice.model).kind
    if kind == ProviderAccount.Kind.ANTHROPIC:
        name = asked.logprobs_field
        problem = f"{name}: this model's interface, Anthropic's, has no log probabilities. "
        problem += "Leave the field out, or choose another model."
        raise InvalidRequest(problem, param=name, code="unsupported_parameter")


def build_probe_chat(sent: Sent) -> Chat:
    """Return an unsaved chat with the policy that applies to a request."""
    named, wanted = sent.chat, sent.wanted
    chat = Chat(owner_id=sent.user.pk, model=wanted.model, policy=sent.policy)
    if wanted.chat is not None:
        chat.model, chat.policy = wanted.chat.model, wanted.chat.policy
    if named is not None:
        chat.pk = named.pk
    return chat


def is_off(headers: Mapping[str, str]) -> bool:
    """Return True if the header requests that nothing is stored.

    Raises `InvalidRequest` for other values.
    """
    value = headers.get(POLICY)
    if value is not None and value.strip().lower() != "off":
        raise InvalidRequest(f"{POLICY} must be off.", param=POLICY)
    return value is not None


def is_dry_run(headers: Mapping[str, str]) -> bool:
    """Return True if the header requests a dry run. Raises `InvalidRequest` for other values."""
    value = headers.get(DRY_RUN, "false").strip().lower()
    if value not in ("true", "false"):
        raise InvalidRequest(f"{DRY_RUN} must be true or false.", param=DRY_RUN)
    return value == "true"
