"""Refusals in the form of the door they came through: a page, a partial or JSON."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template import loader

from chats.ground.refusals import Refusal


def refusal_response(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """Return the refusal as JSON for programs, else as a page with the same sentence."""
    response: HttpResponse
    if is_of_programs(request):
        response = JsonResponse(body_for(request, refusal), status=refusal.status)
    else:
        context = {"refusal": refusal, "request_id": getattr(request, "request_id", "")}
        response = render(request, "error.html", context, status=refusal.status)
    if refusal.retry_after is not None:
        response["Retry-After"] = str(refusal.retry_after)
    return response


def is_of_programs(request: HttpRequest) -> bool:
    """Tell whether the address is one that programs use, whether or not it exists."""
    return request.path.partition("/")[2].partition("/")[0] in {"api", "v1"}


def body_for(request: HttpRequest, refusal: Refusal) -> dict[str, Any]:
    """Return the error as the address's programs know it: below /v1, OpenAI's four keys."""
    body = refusal.body(request_id=getattr(request, "request_id", ""))
    if not request.path.startswith("/api"):
        del body["error"]["request_id"]
    return body


class Unforeseen(Refusal):
    """An error of ours that nobody foresaw; the log has it under the request's id."""

    code = "internal_error"
    status = 500
    sentence = (
        "Something went wrong on this server. Nothing you wrote is lost; try again, and tell an"
        " operator the request id if it happens again."
    )


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the response to an unforeseen error, in the form of the door."""
    if is_of_programs(request):
        return refusal_response(request, Unforeseen())
    # Without the context processors: one of them may ask for the very thing that is broken.
    context = {"request_id": getattr(request, "request_id", "")}
    return HttpResponse(loader.get_template("500.html").render(context), status=500)
