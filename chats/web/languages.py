"""Selects the response language: the account's on pages, otherwise that of `Accept-Language`."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils import translation
from django.utils.cache import patch_vary_headers

from chats.people import zones

# Clients of OpenAI's API read the errors below this path, which are always English.
GATEWAY = "/v1/"


class LanguageMiddleware:
    """Activates the language of a request. Place it after the session middleware.

    A stream continues after its view has returned: `chats.streams.connection` keeps the language.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(GATEWAY):
            with translation.override(settings.LANGUAGE_CODE):
                return self.get_response(request)
        language = select_request_language(request)
        with translation.override(language):
            response = self.get_response(request)
        response.headers.setdefault("Content-Language", language)
        patch_vary_headers(response, ("Accept-Language",))
        return response


def select_request_language(request: HttpRequest) -> str:
    """Return one of `LANGUAGES`: the session's choice, or that of `Accept-Language`."""
    if settings.SESSION_COOKIE_NAME in request.COOKIES:
        chosen = request.session.get(zones.LANGUAGE, "")
        if chosen in dict(settings.LANGUAGES):
            return str(chosen)
    return translation.get_language_from_request(request)
