"""Images with the detail `original`, which only newer models know."""

import hashlib

import pytest

from chats.prompt.sent_request import serialise_request_forms
from chats.providers.base import ProviderRequest
from chats.providers.wire import build_openai_body
from contextpolicy.engine.messages.images import Image, parse_image_reference
from contextpolicy.engine.messages.messages import FilePart, WireMessage
from tests.fakes.calls import adapter_to, asked, call, text_in
from tests.fakes.fake_server import FakeServer

ADDRESS = "https://pictures.example/a.png"


def build_request(detail: str) -> ProviderRequest:
    """Return a request with an image."""
    part = FilePart("image/*", "", Image(1000, detail, url=ADDRESS).reference)
    return asked("", messages=(WireMessage("user", "See", images=((0, part),)),))


def test_the_detail_is_stored_with_the_image() -> None:
    image = Image(1000, "original", url=ADDRESS)
    assert parse_image_reference(image.reference) == image


@pytest.mark.parametrize(
    ("reject", "details"), [("", ["original"]), ("original", ["original", None])]
)
def test_a_server_that_does_not_know_it_chooses_the_detail(
    openai_server: FakeServer, reject: str, details: list[str | None]
) -> None:
    openai_server.configure(reject=f"detail.{reject}" if reject else "")
    request = build_request("original")
    assert text_in(call(adapter_to(openai_server), request))
    bodies = [each["body"] for each in openai_server.requests()]
    images = [
        piece["image_url"]
        for body in bodies
        for piece in body["messages"][0]["content"]
        if piece["type"] == "image_url"
    ]
    assert [image.get("detail") for image in images] == details
    forms = serialise_request_forms(request, is_anthropic=False)
    sent = {hashlib.sha256(form.encode()).hexdigest() for form in forms}
    assert openai_server.requests()[-1]["body_sha256"] in sent


def test_other_details_stay() -> None:
    body = build_openai_body(build_request("low"), takes_original_images=False)
    assert body["messages"][0]["content"][0]["image_url"] == {"url": ADDRESS, "detail": "low"}
