"""The administration with the pages it leads to; the rest of the product does not take part."""

from django.urls import include, path

from contextpolicy.admin.site import site

urlpatterns = [
    path("admin/", site.urls),
    path("", include("chats.web.signin_urls")),
    path("", include("chats.web.urls")),
]
