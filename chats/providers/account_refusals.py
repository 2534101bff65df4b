"""Refusals of the setup of a model server."""

from typing import TYPE_CHECKING

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground.refusals import Refusal
from chats.ground.sentences import Sentence
from chats.providers.base import ProviderError

if TYPE_CHECKING:
    pass


# The sentences for the person who connects a server, by error code.
SETUP_SENTENCES = {
    "provider_auth": gettext_lazy("The server rejected the API key. Check the key."),
    "provider_unavailable": gettext_lazy(
        "The server could not be reached. Check that the address is correct, and that the server "
        "is running and accepts connections from this server."
    ),
    "provider_timeout": gettext_lazy(
        "The server did not answer in time. Check the address and try again."
    ),
    "provider_rate_limited": gettext_lazy(
        "The server is receiving too many requests. Try again in a minute."
    ),
    "provider_protocol": gettext_lazy(
        "The server answered without a list of models. Check the address. Most addresses end "
        "with /v1."
    ),
    "provider_rejected": gettext_lazy(
        "The server did not list its models. Check the address. Most addresses end with /v1."
    ),
}
# The same sentences for a server that answered with an HTTP status.
ANSWERED_SENTENCES = {
    "provider_auth": gettext_lazy(
        "The server rejected the API key (status {status}). Check the key."
    ),
    "provider_unavailable": gettext_lazy(
        "The server is not available (status {status}). Check that the address is correct, and "
        "that the server is running."
    ),
    "provider_rate_limited": gettext_lazy(
        "The server is receiving too many requests (status {status}). Try again in a minute."
    ),
    "provider_rejected": gettext_lazy(
        "The server did not list its models (status {status}). Check the address. Most addresses "
        "end with /v1."
    ),
}


class ServerRefused(Refusal):
    """The server did not return its list of models. `code` is that of the provider's error."""

    status = 422
    sentence = "{reason}"

    def __init__(self, error: ProviderError) -> None:
        self.code = error.code
        is_usual = error.sentence == ProviderError(error.code).sentence
        reason: Promise | None = SETUP_SENTENCES.get(error.code) if is_usual else None
        if reason is not None and error.status:
            answered = ANSWERED_SENTENCES.get(error.code, reason)
            reason = Sentence(answered, status=error.status)
        super().__init__(reason=reason or error.full)


class NoModelsOffered(Refusal):
    """The server answers but lists no models. Load a model there first."""

    code = "no_models_offered"
    status = 422
    sentence = gettext_noop(
        "The server responded but has no models. Load a model on the server (for Ollama: ollama "
        "pull), then connect again."
    )


class AlreadyConnected(Refusal):
    """Another account has this base URL. Edit that account instead."""

    code = "already_connected"
    status = 409
    sentence = gettext_noop(
        "This server is already connected as “{name}”. Edit or test that account."
    )
    param = "base_url"


class NameTooLong(Refusal):
    """The account's name has more than 200 characters."""

    code = "too_long"
    status = 422
    sentence = gettext_noop("The name has {length} characters. The limit is 200. Shorten the name.")
    param = "name"


class UnknownKind(Refusal):
    """The kind of server is unknown. Choose one from the list."""

    code = "unknown_kind"
    status = 422
    sentence = gettext_noop("Unknown kind of server. Choose one from the list.")
    param = "kind"


class KeyNotPlain(Refusal):
    """The key contains characters that are not allowed in a header."""

    code = "invalid_key"
    status = 422
    sentence = gettext_noop(
        "The key contains a space or a character that is not allowed in keys. Copy it again."
    )
    param = "api_key"
