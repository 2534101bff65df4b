"""All addresses: pages, admin, REST and the two probes."""

from django.urls import include, path

from chats.admin import site
from project.probes import healthz, readyz

handler400 = "project.middleware.bad_request"
handler500 = "chats.web.errors.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("admin/", site.urls),
    path("api/v1/", include("chats.api.urls")),
    path("", include("chats.web.signin_urls")),
    path("", include("chats.web.urls")),
]
