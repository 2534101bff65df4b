"""`/metrics`: metrics for Prometheus, for permitted clients."""

import ipaddress
import secrets
from importlib import import_module

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from chats.ground import shared_figures
from chats.people.signin import resolve_client_address

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
DENIED = (
    "These metrics need the token in METRICS_TOKEN as a bearer token, or a client address of"
    " METRICS_ADDRESSES."
)


def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics; 403 if the client is not permitted, 404 if they are switched off."""
    if not shared_figures.is_switched_on():
        raise Http404
    if not is_permitted(request):
        error = {"code": "metrics_denied", "message": DENIED}
        return JsonResponse({"error": error}, status=403)
    # Loaded with the first request: most instances have no Prometheus.
    collector = import_module("project.metrics_collector")
    return HttpResponse(collector.format_metrics(timezone.now()), content_type=CONTENT_TYPE)


def is_permitted(request: HttpRequest) -> bool:
    """Return True if the client has the token or one of the permitted addresses."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    token = settings.METRICS_TOKEN.encode()
    if token and scheme.lower() == "bearer" and secrets.compare_digest(given.encode(), token):
        return True
    address = resolve_client_address(
        remote_addr=request.META.get("REMOTE_ADDR", ""),
        forwarded_for=request.headers.get("X-Forwarded-For", ""),
    )
    try:
        # For an IPv6 client, this is a whole network.
        client = ipaddress.ip_network(address)
    except ValueError:
        return False
    return any(
        client.version == allowed.version and client.subnet_of(allowed)  # type: ignore[arg-type]  # equal versions
        for allowed in settings.METRICS_ADDRESSES
    )
