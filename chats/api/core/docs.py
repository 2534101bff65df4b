"""The OpenAPI schema and a page that shows it. drf-spectacular's own page needs inline scripts."""

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.templatetags.static import static
from django.urls import reverse
from django.utils import translation
from django.utils.html import format_html
from django.utils.translation import get_language, gettext
from django.views.decorators.http import require_GET
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import ANY_KEY, Endpoint
from chats.api.core.schema import Generator
from chats.people import zones

VIEWER = "drf_spectacular_sidecar/swagger-ui-dist/swagger-ui"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Palimpsest API</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{viewer}.css">
<link rel="stylesheet" href="{style}">
</head>
<body>
<nav lang="{language}"><a href="{home}">{back}</a> · <a href="{guide}">{help}</a></nav>
<main id="api" data-schema="{schema}" data-scheme="{scheme}"></main>
<script src="{viewer}-bundle.js"></script>
<script src="{script}"></script>
</body>
</html>
"""
# Requests that are tried out on the page use the session, so they need its CSRF token.
SCRIPT = """"use strict";
const place = document.getElementById("api");
// The viewer has its own dark colours, under this class.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => {
  const { scheme } = place.dataset;
  const isDark = scheme === "dark" || (scheme !== "light" && dark.matches);
  document.documentElement.classList.toggle("dark-mode", isDark);
};
dark.addEventListener("change", paint);
paint();
SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  // Deep links would nest links inside buttons.
  deepLinking: false,
  requestInterceptor: (request) => {
    const cookie = document.cookie.match(/(?:^|; )(?:__Host-csrf|csrftoken)=([^;]*)/);
    if (cookie && new URL(request.url, location.href).origin === location.origin) {
      request.headers["X-CSRFToken"] = cookie[1];
    }
    return request;
  },
});
"""


class SchemaViewSet(Endpoint):
    read_scope = ANY_KEY

    @extend_schema(exclude=True)
    def retrieve(self, request: Request) -> Response:
        generator = Generator()  # type: ignore[no-untyped-call]  # untyped there
        # English, like the file in `docs/`: labels of choices follow the language otherwise.
        with translation.override(settings.LANGUAGE_CODE):
            schema = generator.get_schema(request=request, public=True)
        return Response(schema)


@login_required
@require_GET
def docs_page(request: HttpRequest) -> HttpResponse:
    html = format_html(
        PAGE,
        icon=static("favicon.svg"),
        viewer=static(VIEWER),
        style=static("css/api_docs.css"),
        schema=reverse("api:schema"),
        scheme=request.session.get(zones.APPEARANCE, ""),
        language=get_language(),
        home=reverse("chats:home"),
        back=gettext("Back to chats"),
        guide=reverse("chats:help", args=["api"]),
        help=gettext("Help"),
        script=reverse("api:docs-script"),
    )
    return HttpResponse(html)


@login_required
@require_GET
def docs_script(request: HttpRequest) -> HttpResponse:
    return HttpResponse(SCRIPT, content_type="text/javascript; charset=utf-8")
