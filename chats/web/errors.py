"""Refusals in the form of the door they came through: a page, a partial or JSON."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render

from chats.refusals import Refusal


def refusal_response(request: HttpRequest, refusal: Refusal) -> HttpResponse:
    """The refusal as JSON for programs, else as a page with the same sentence."""
    response: HttpResponse
    if request.path.startswith("/api/"):
        response = JsonResponse(error_body(request, refusal), status=refusal.status)
    else:
        context = {"refusal": refusal, "request_id": getattr(request, "request_id", "")}
        response = render(request, "error.html", context, status=refusal.status)
    if refusal.retry_after is not None:
        response["Retry-After"] = str(refusal.retry_after)
    return response


def error_body(request: HttpRequest, refusal: Refusal) -> dict[str, Any]:
    """The JSON shape of every error: `{"error": {message, type, param, code, request_id}}`."""
    return {
        "error": {
            "message": refusal.sentence,
            "type": "server_error" if refusal.status >= 500 else "invalid_request_error",
            "param": refusal.param,
            "code": refusal.code,
            "request_id": getattr(request, "request_id", ""),
        }
    }
