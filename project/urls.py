"""All addresses: pages, admin, REST and the two probes."""

from django.urls import include, path, re_path

from chats.admin import site
from chats.api.endpoint import nothing_here
from project.probes import healthz, readyz

handler400 = "project.middleware.bad_request"
handler500 = "chats.web.errors.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("admin/", site.urls),
    path("api/v1/", include("chats.api.urls")),
    path("v1/", include("chats.gateway.urls")),
    # Programs get JSON from every address of theirs; pages have none of these.
    *(path(door, nothing_here) for door in ("api", "v1")),
    *(re_path(f"^{door}/", nothing_here) for door in ("api", "v1")),
    path("", include("chats.web.account.urls")),
    path("", include("chats.web.urls")),
]
