"""The person's own page: name, password, sessions, appearance, keyboard."""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from chats.ground.refusals import NotFound
from chats.people import sessions
from chats.web.account import signin
from chats.web.auth import PersonRequest, signed_in


@require_GET
@signed_in
def settings_page(request: PersonRequest) -> HttpResponse:
    """Show what is known about the person, their sessions, and how the pages are used."""
    context = {
        "sessions": sessions.sessions_of(user=request.user, now=timezone.now()),
        "here": here(request),
    }
    return render(request, "settings.html", context)


@require_POST
@signed_in
def session_end(request: PersonRequest, session: str) -> HttpResponse:
    """End one of the person's sessions, in whatever browser it is. Raises `NotFound`."""
    if session == here(request):
        return signin.logout(request)
    if not sessions.revoke_session(user=request.user, session=session, now=timezone.now()):
        raise NotFound
    return redirect("chats:settings")


def here(request: PersonRequest) -> str:
    """Return the name of this request's session."""
    return sessions.session_id(request.session.session_key or "")
