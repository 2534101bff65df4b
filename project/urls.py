"""All addresses: pages, admin, REST and the two probes."""

from django.contrib import admin
from django.urls import include, path

from project.probes import healthz, readyz

urlpatterns = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("admin/", admin.site.urls),
    path("api/v1/", include("chats.api.urls")),
    path("", include("chats.web.signin_urls")),
    path("", include("chats.web.urls")),
]
