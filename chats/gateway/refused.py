"""Refusals of requests to /v1; the door gives them OpenAI's form."""

from chats.ground.refusals import NotFound, Refusal


class InvalidRequest(Refusal):
    """A field is missing, of the wrong kind, or asks for what is not done here.

    `code` is stable: `invalid_json`, `missing_field`, `invalid_value`, `unsupported_parameter`,
    `unsupported_content`.
    """

    status = 400
    sentence = "{problem}"

    def __init__(self, problem: str, *, param: str | None, code: str = "invalid_value") -> None:
        super().__init__(problem=problem)
        self.param = param
        self.code = code


class ModelNotFound(Refusal):
    """There is no such model, policy or chat, or not for this key's owner: never told apart."""

    code = "model_not_found"
    status = 404
    sentence = "There is no model “{model}” here that this key may use. GET /v1/models lists them."
    param = "model"


class MakesNoEmbeddings(Refusal):
    """A model that chats was asked for embeddings."""

    code = "model_makes_no_embeddings"
    status = 400
    sentence = (
        "The model “{model}” makes no embeddings. Choose one that does; an operator marks it so."
    )
    param = "model"


class OptOutNotAllowed(Refusal):
    """The key or a header asks for nothing to be kept, and the policy keeps it."""

    code = "opt_out_not_allowed"
    status = 403
    sentence = "The policy {policy} keeps what programs say, so nothing was sent on. {advice}"


class ChatKeepsItsMessages(Refusal):
    """A request names a chat, and nothing of it is to be kept."""

    code = "chat_keeps_its_messages"
    status = 409
    sentence = (
        "A chat that is named keeps what is said in it, and of this request nothing is to be kept. "
        "Name a model instead of the chat."
    )
    param = "model"


class TeamInChat(Refusal):
    """The chat has a team, whose agents are asked on pages and through the API."""

    code = "team_replies_here"
    status = 409
    sentence = "A team replies in this chat. Send the message through /api/v1, or use another chat."
    param = "model"


class NoKey(Refusal):
    """The request came without an API key."""

    code = "invalid_api_key"
    status = 401
    sentence = "Send an API key with the scope gateway as “Authorization: Bearer plm_…”."


class WrongMethod(Refusal):
    """The address exists, but not for this method."""

    code = "method_not_allowed"
    status = 405
    sentence = "This address takes {allowed} requests only."


class UnknownAddress(NotFound):
    """An address below /v1 does not exist."""

    sentence = (
        "{path} does not exist here. There are GET /v1/models and /v1/models/{{name}}, and POST"
        " /v1/chat/completions, /v1/responses, /v1/responses/compact and /v1/embeddings."
    )


class BodyTooLarge(Refusal):
    """The body is over the limit."""

    code = "request_too_large"
    status = 413
    sentence = "The request is larger than {limit:,} bytes. Send less at once."


class PreviousResponseNotFound(Refusal):
    """There is no such response, or not for this key's owner and end user: never told apart."""

    code = "previous_response_not_found"
    status = 404
    sentence = "There is no response “{id}” to go on from. Send the whole conversation as input."
    param = "previous_response_id"


class ForeignCompaction(Refusal):
    """A compaction item that was not made here, or for somebody else, or cannot be read now."""

    code = "compaction_unreadable"
    status = 400
    sentence = (
        "The encrypted_content of a compaction item was not made here for this key's owner, so "
        "nobody can read it. Leave the item out, or send the messages themselves."
    )
    param = "input"


class DatabaseUnavailable(Refusal):
    """The database does not answer. What was accepted goes on once it is back."""

    code = "database_busy"
    status = 503
    sentence = "The database does not answer. Send the request again in a few seconds."
    retry_after = 5
