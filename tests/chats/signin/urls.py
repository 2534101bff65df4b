"""The URLs of the product, plus a page that shows the signed-in user."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from project import urls


def who(request: HttpRequest) -> HttpResponse:
    """Return the name of the signed-in user."""
    return HttpResponse(request.user.get_username())


urlpatterns = [path("who", who), *urls.urlpatterns]
