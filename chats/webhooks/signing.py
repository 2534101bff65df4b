"""The secrets of webhooks, and the signature of a delivery: HMAC-SHA-256 over id, time and body."""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime
from uuid import UUID

MARK = "whsec_"
BYTES = 32


def new_secret() -> str:
    """Return a fresh secret of 256 bits, as the specification writes it."""
    return MARK + base64.b64encode(secrets.token_bytes(BYTES)).decode()


def headers(*, secret: str, public_id: UUID, body: str, now: datetime) -> dict[str, str]:
    """Return the headers by which a receiver knows who sent this, and when."""
    told = f"msg_{public_id.hex}"
    second = str(int(now.timestamp()))
    key = base64.b64decode(secret.removeprefix(MARK))
    signed = hmac.digest(key, f"{told}.{second}.{body}".encode(), hashlib.sha256)
    return {
        "webhook-id": told,
        "webhook-timestamp": second,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
