"""Refusals as a page, a partial or JSON, depending on the request."""

import sys
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template import loader
from django.utils.translation import gettext_noop

from chats.ground import databases
from chats.ground.refusals import Refusal


def render_refusal(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """Return the error as JSON for API paths, otherwise as an HTML page with the same message."""
    response: HttpResponse
    if is_api_request(request):
        response = JsonResponse(build_error_body(request, refusal), status=refusal.status)
    else:
        context = {"refusal": refusal, "request_id": getattr(request, "request_id", "")}
        response = render(request, "error.html", context, status=refusal.status)
    return set_retry_after(response, refusal)


def set_retry_after(response: HttpResponse, refusal: Refusal) -> HttpResponse:
    """Add the header `Retry-After` of a refusal to its response, if it has one."""
    if refusal.retry_after is not None:
        response["Retry-After"] = str(refusal.retry_after)
    return response


def is_api_request(request: HttpRequest) -> bool:
    """Return True if the path is below an API prefix, whether or not it exists."""
    return request.path.partition("/")[2].partition("/")[0] in {"api", "v1"}


def build_error_body(request: HttpRequest, refusal: Refusal) -> dict[str, Any]:
    """Return the error body of the API. Below /v1 it has OpenAI's four keys."""
    body = refusal.body(request_id=getattr(request, "request_id", ""))
    if not request.path.startswith("/api"):
        del body["error"]["request_id"]
    return body


class Unforeseen(Refusal):
    """An unexpected error. The log contains it under the request ID."""

    code = "internal_error"
    status = 500
    sentence = gettext_noop(
        "Something went wrong on this server. Your text is not lost. Try again. If it happens "
        "again, give an operator the request ID."
    )


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the response to an unexpected error, as a page or as JSON.

    Also handles a full disk when a write fails before the view runs, such as storing an upload.
    """
    error = sys.exc_info()[1]
    if databases.is_full(error):
        return render_refusal(request, databases.StorageFull())
    if is_api_request(request):
        return render_refusal(request, Unforeseen())
    # Without context processors: one of them may need the part that is broken.
    context = {"request_id": getattr(request, "request_id", "")}
    return HttpResponse(loader.get_template("500.html").render(context), status=500)
