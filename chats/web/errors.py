"""Refusals in the form of the door they came through: a page, a partial or JSON."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template import loader

from chats.refusals import Refusal


def refusal_response(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """The refusal as JSON for programs, else as a page with the same sentence."""
    response: HttpResponse
    if request.path.startswith("/api/"):
        response = JsonResponse(
            refusal.body(request_id=getattr(request, "request_id", "")), status=refusal.status
        )
    else:
        context = {"refusal": refusal, "request_id": getattr(request, "request_id", "")}
        response = render(request, "error.html", context, status=refusal.status)
    if refusal.retry_after is not None:
        response["Retry-After"] = str(refusal.retry_after)
    return response


class Unforeseen(Refusal):
    """An error of ours that nobody foresaw; the log has it under the request's id."""

    code = "internal_error"
    status = 500
    sentence = (
        "Something went wrong on this server. Nothing you wrote is lost; try again, and tell an"
        " operator the request id if it happens again."
    )


def server_error(request: HttpRequest) -> HttpResponse:
    """The answer to an unforeseen error, in the form of the door."""
    if request.path.startswith("/api/"):
        return refusal_response(request, Unforeseen())
    # Without the context processors: what one of them asks for may be what is broken.
    context = {"request_id": getattr(request, "request_id", "")}
    return HttpResponse(loader.get_template("500.html").render(context), status=500)
