"""The product's addresses, and one more that says who is signed in."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from project import urls


def who(request: HttpRequest) -> HttpResponse:
    """The name of who is signed in."""
    return HttpResponse(request.user.get_username())


urlpatterns = [path("who", who), *urls.urlpatterns]
