"""All URLs: pages, admin, REST, the gateway below `/v1`, both probes and the metrics."""

from django.urls import include, path, re_path
from django.views.decorators.cache import cache_control
from django.views.i18n import JavaScriptCatalog

from chats.admin import site
from chats.api.core.base import raise_not_found
from chats.gateway.chat_completions.views import unknown_address
from project.metrics import metrics
from project.probes import healthz, readyz

handler400 = "project.middleware.bad_request"
handler500 = "chats.web.errors.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    path("admin/", site.urls),
    # The texts of the scripts. The address contains the language.
    path(
        "jsi18n/",
        cache_control(private=True, max_age=3600)(JavaScriptCatalog.as_view(packages=["project"])),
        name="javascript-catalog",
    ),
    path("api/v1/", include("chats.api.urls")),
    path("v1/", include("chats.gateway.urls")),
    path("v1", unknown_address),
    # API clients get JSON errors for every path below these, because no page is there.
    path("api", raise_not_found),
    re_path("^api/", raise_not_found),
    path("", include("chats.web.account.urls")),
    path("", include("chats.web.urls")),
]
