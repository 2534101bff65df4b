"""Webhook secrets, and the signature of a delivery: HMAC-SHA-256 over id, time and body."""

import base64
import hashlib
import hmac
import secrets
from datetime import datetime
from uuid import UUID

MARK = "whsec_"
BYTES = 32


def generate_webhook_secret() -> str:
    """Return a new 256-bit secret in the format of the Standard Webhooks specification."""
    return MARK + base64.b64encode(secrets.token_bytes(BYTES)).decode()


def build_signature_headers(
    *, secret: str, public_id: UUID, body: str, now: datetime
) -> dict[str, str]:
    """Return the headers that let a receiver verify the sender and the time."""
    told = f"msg_{public_id.hex}"
    second = str(int(now.timestamp()))
    key = base64.b64decode(secret.removeprefix(MARK))
    signed = hmac.digest(key, f"{told}.{second}.{body}".encode(), hashlib.sha256)
    return {
        "webhook-id": told,
        "webhook-timestamp": second,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
