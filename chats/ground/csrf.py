"""Explains why Django refused a browser request: its token, cookie or origin."""

import re

from django.conf import settings
from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

ORIGIN = re.compile(r"(?:Origin|Referer) checking failed - (.{1,200}?) does not match", re.DOTALL)


def explain_csrf_failure(reason: str) -> str | Promise:
    """Return a sentence for operators about how to fix the cause of the refusal.

    Empty for other causes, such as an outdated page.
    """
    if found := ORIGIN.search(reason):
        return format_lazy(
            gettext_lazy(
                "The browser sent the origin {origin}, but this server is configured for "
                "{own}. Open that address, or set PALIMPSEST_PUBLIC_URL to the address that "
                "you use. A proxy must forward Host and X-Forwarded-Proto (TRUSTED_PROXY)."
            ),
            origin=found[1],
            own=settings.PUBLIC_URL or gettext_lazy("the address in the Host header"),
        )
    if "Referer" in reason:
        return gettext_lazy("The browser sent no Referer header. Allow the header for this site.")
    if "cookie not set" in reason:
        if settings.CSRF_COOKIE_SECURE:
            return gettext_lazy(
                "The browser sent no cookie for this site. Allow cookies for this site, and open "
                "it over https."
            )
        return gettext_lazy(
            "The browser sent no cookie for this site. Allow cookies for this site."
        )
    return ""
