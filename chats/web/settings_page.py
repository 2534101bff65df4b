"""The person's own page: name, password, appearance, keyboard."""

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.web.doors import PersonRequest, signed_in


@require_GET
@signed_in
def settings_page(request: PersonRequest) -> HttpResponse:
    """What is known about the person, and how the pages are used."""
    return render(request, "settings.html")
