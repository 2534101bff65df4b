"""Images and files in requests to the gateway."""

import base64
import io
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from chats.files import uploads
from chats.models import StoredFile
from tests.chats.files.sample_files import make_pdf
from tests.support.gateway_clients import GatewayClient, user

PNG = b"\x89PNG\r\n\x1a\n" + b"a picture of the harbour"
PDF = make_pdf("The harbour fee is 42 crowns.")


def build_image_url(data: bytes = PNG, kind: str = "image/png") -> str:
    """Return a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def build_image_message(url: str, text: str = "Describe this.", **more: str) -> dict[str, Any]:
    """Return a user message with a text and an image."""
    image = {"type": "image_url", "image_url": {"url": url, **more}}
    return user([{"type": "text", "text": text}, image])


def build_pdf_url(data: bytes = PDF, kind: str = "application/pdf") -> str:
    """Return a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def build_file_message(question: str = "Name the fee.", **fields: Any) -> dict[str, Any]:
    """Return a user message with a file."""
    fields = fields or {"file_data": build_pdf_url(), "filename": "fees.pdf"}
    return user([{"type": "file", "file": fields}, {"type": "text", "text": question}])


def respond_to_parts(program: GatewayClient, *parts: dict[str, Any], **more: Any) -> Any:
    """Send an input to Responses, let the model reply, and return the response."""
    body = {"model": "demo", "input": [{"role": "user", "content": list(parts)}], **more}
    response = program.open(body, path="responses")
    if response.streaming:
        program.work(response["X-Context-Report-Id"])
    return program.close(response)


def upload_file(data: bytes, owner: User, name: str = "fees.pdf") -> StoredFile:
    """Upload a file."""
    return uploads.accept_upload(io.BytesIO(data), name=name, owner=owner, now=timezone.now())[0]
