"""Refusals of requests to /v1. The views convert them to OpenAI's error format."""

from chats.ground.refusals import NotFound, Refusal


class InvalidRequest(Refusal):
    """A field is missing, invalid or not supported.

    `code` is stable: `invalid_json`, `missing_field`, `invalid_value`, `unsupported_parameter`,
    `unsupported_content`, `system_text_ignored`, `file_url_not_supported`, `invalid_image`,
    `image_too_large`.
    """

    status = 400
    sentence = "{problem}"

    def __init__(self, problem: str, *, param: str | None, code: str = "invalid_value") -> None:
        super().__init__(problem=problem)
        self.param = param
        self.code = code


class ModelNotFound(Refusal):
    """The model, policy or chat does not exist, or this key's owner may not use it.

    The error does not reveal which.
    """

    code = "model_not_found"
    status = 404
    sentence = "This key cannot use a model named “{model}”. GET /v1/models lists its models."
    param = "model"


class MakesNoEmbeddings(Refusal):
    """The model does not support embeddings. Name an embedding model."""

    code = "model_makes_no_embeddings"
    status = 400
    sentence = (
        "The model “{model}” does not support embeddings. Choose an embedding model. An "
        "administrator can mark a model as one."
    )
    param = "model"


class OptOutNotAllowed(Refusal):
    """The key or a header asks for pass-through, but the policy does not allow it."""

    code = "opt_out_not_allowed"
    status = 403
    sentence = "The policy {policy} stores messages, so the request was not sent. {advice}"


class ChatKeepsItsMessages(Refusal):
    """A pass-through request names a chat. Chats always store their messages."""

    code = "chat_keeps_its_messages"
    status = 409
    sentence = (
        "A named chat or conversation stores its messages, but this request must not be stored. "
        "Name a model, and no conversation."
    )
    param = "model"


class TeamInChat(Refusal):
    """The chat has a team, which replies only on the pages and through the REST API."""

    code = "team_replies_here"
    status = 409
    sentence = "A team replies in this chat. Send the message through /api/v1, or use another chat."
    param = "model"


class NoKey(Refusal):
    """The request has no API key. Send it as `Authorization: Bearer plm_…`."""

    code = "invalid_api_key"
    status = 401
    sentence = "Send an API key with the scope gateway as “Authorization: Bearer plm_…”."


class WrongMethod(Refusal):
    """The URL exists but does not support this method."""

    code = "method_not_allowed"
    status = 405
    sentence = "This address supports only {allowed} requests."


class UnknownAddress(NotFound):
    """The URL under /v1 does not exist."""

    sentence = (
        "{path} does not exist. The addresses are GET /v1/models and /v1/models/{{name}}, POST "
        "/v1/chat/completions, /v1/completions, /v1/responses, /v1/responses/compact and "
        "/v1/embeddings, GET and DELETE /v1/responses/{{id}}, GET "
        "/v1/responses/{{id}}/input_items, and the conversations at /v1/conversations."
    )


class BodyTooLarge(Refusal):
    """The request body exceeds the limit."""

    code = "request_too_large"
    status = 413
    sentence = (
        "The request is larger than {limit:,} bytes. Upload its files with POST /api/v1/files and "
        "send their ids as file_id, or send a smaller request."
    )


class PreviousResponseNotFound(Refusal):
    """The response does not exist, or belongs to another owner or end user.

    The error does not reveal which.
    """

    code = "previous_response_not_found"
    status = 404
    sentence = "Response “{id}” was not found. Send the whole conversation as input."
    param = "previous_response_id"


class ConversationNotFound(Refusal):
    """The conversation does not exist, was deleted, or belongs to another owner or end user.

    The error does not reveal which.
    """

    code = "conversation_not_found"
    status = 404
    sentence = (
        "This key has no conversation “{id}”. Create one with POST /v1/conversations, and send the "
        "same end user with each request."
    )
    param = "conversation"


class ConversationLocked(Refusal):
    """A reply is being written in the conversation, or another request has just changed it."""

    code = "conversation_locked"
    status = 409
    sentence = (
        "Another request is using this conversation. Wait for its reply, then send this one again."
    )
    param = "conversation"
    retry_after = 1


class ResponseNotFound(Refusal):
    """The response does not exist, belongs to another owner, or was deleted or erased."""

    code = "response_not_found"
    status = 404
    sentence = (
        "This key has no response “{id}”. Responses created with store: false cannot be "
        "retrieved by id."
    )


class ItemNotFound(Refusal):
    """The item does not exist, belongs to another owner or end user, or was erased."""

    code = "item_not_found"
    status = 404
    sentence = "This key has no item “{id}”. Send the item itself instead of a reference."

    def __init__(self, item_id: str, *, param: str) -> None:
        super().__init__(id=item_id)
        self.param = param


class ForeignCompaction(Refusal):
    """The compaction item is from another server or owner, or cannot be decrypted."""

    code = "compaction_unreadable"
    status = 400
    sentence = (
        "The encrypted_content of a compaction item was not created here for the owner of this "
        "key, so it cannot be read. Leave the item out, or send the messages themselves."
    )
    param = "input"
