"""Headers that each response must have, and the addresses that answer GET."""

from typing import Any

from chats.streams.files import SANDBOX_POLICY
from tests.security.addresses import routes

FIXED_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
CONTENT_POLICY = (
    "default-src 'none'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "object-src 'none'",
)
READABLE_ROUTES = [route for route in routes() if not route.text.endswith(("stream", "}/events"))]
READABLE_ROUTES = [
    r for r in READABLE_ROUTES if "turn_id>/events" not in r.text and "logout" not in r.text
]


def is_users_content(answer: Any) -> bool:
    """Return True for bytes of a user's image or file, to which the product adds nothing."""
    kind = str(answer.headers["Content-Type"])
    return kind.startswith("image/png") or kind == "application/octet-stream"


def check_headers(answer: Any, where: object) -> None:
    """Check the headers of §6, whatever the status."""
    for name, value in FIXED_HEADERS.items():
        assert answer.headers.get(name) == value, (where, name)
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "*" not in policy
    if "jsi18n/" not in str(where):
        # The sentences of the scripts are the same for everyone.
        assert "no-store" in answer.headers["Cache-Control"], where
    for name in ("Server", "X-Powered-By", "Access-Control-Allow-Origin"):
        assert name not in answer.headers, where
    if is_users_content(answer):
        assert policy == SANDBOX_POLICY, where
        return
    rules = policy.split("; ")
    assert set(CONTENT_POLICY) <= set(rules), where
    for kind in ("script-src", "style-src"):
        (rule,) = [rule for rule in rules if rule.startswith(kind)]
        assert rule.startswith(f"{kind} 'self' 'nonce-")
        assert len(rule.partition("nonce-")[2]) > 16
