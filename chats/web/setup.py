"""The first steps: connect a model server, or try the demo."""

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from chats import providers_setup, sessions
from chats.models import ProviderAccount
from chats.refusals import Refusal
from chats.web.doors import PersonRequest, actor, signed_in

PERMISSION = "chats.change_provideraccount"


class MayNotConnect(Refusal):
    """Only operators connect servers."""

    code = "not_permitted"
    status = 403
    sentence = "Your account may not connect model servers. Ask an operator of this installation."


@require_http_methods(["GET", "POST"])
@signed_in
def setup(request: PersonRequest) -> HttpResponse:
    """What is connected and what was found; an operator may add a server."""
    if request.method == "GET":
        return setup_page(request)
    if not request.user.has_perm(PERMISSION):
        raise MayNotConnect
    now = timezone.now()
    try:
        sessions.require_recent(session=request.session, now=now)
        providers_setup.connect(
            name=request.POST.get("name", ""),
            base_url=request.POST.get("base_url", ""),
            api_key=request.POST.get("api_key", ""),
            actor=actor(request),
            now=now,
        )
    except Refusal as refusal:
        return setup_page(request, refusal=refusal)
    return redirect("chats:setup")


def setup_page(request: PersonRequest, *, refusal: Refusal | None = None) -> HttpResponse:
    """The page; after a refusal with what was typed, except the key."""
    may_connect = request.user.has_perm(PERMISSION)
    is_fresh = sessions.reauthenticated_recently(session=request.session, now=timezone.now())
    context = {
        "accounts": ProviderAccount.objects.filter(enabled=True).annotate(
            is_paused=ExpressionWrapper(Q(paused_until__gt=Now()), output_field=BooleanField())
        ),
        "found": providers_setup.found_servers() if may_connect and is_fresh else [],
        "may_connect": may_connect,
        "is_fresh": is_fresh,
        "refusal": refusal,
        "name": request.POST.get("name", ""),
        "base_url": request.POST.get("base_url", ""),
    }
    return render(request, "setup.html", context, status=refusal.status if refusal else 200)
