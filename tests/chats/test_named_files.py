"""Files in another product's messages keep their name, and their content if it is there."""

import base64
from typing import Any

import pytest

from chats.exchange.draft_builder import Builder
from contextpolicy.engine.messages.messages import FilePart
from tests.support.exchange_files import PNG

TEXT = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{TEXT}"


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, FilePart("image/*", "", URL)),
        ({"type": "input_image", "image_url": URL}, FilePart("image/*", "", URL)),
        (
            {"type": "image", "source": {"media_type": "image/png", "data": TEXT}},
            FilePart("image/png", "", URL),
        ),
        (
            {"type": "image", "data": TEXT, "mimeType": "image/png"},
            FilePart("image/png", "", URL),
        ),
        (
            {"type": "image_file", "image_file": {"filename": "a.png"}},
            FilePart("image/*", "a.png", ""),
        ),
        ({"type": "image_url", "image_url": {"url": "https://x"}}, FilePart("image/*", "", "")),
        ({"type": "document", "title": "a.pdf"}, FilePart("file/*", "a.pdf", "")),
        ({"type": "file", "file": {"filename": "b.pdf"}}, FilePart("file/*", "b.pdf", "")),
    ],
)
def test_a_file_in_a_block_keeps_its_name_and_content(block: Any, part: FilePart) -> None:
    builder = Builder()
    assert builder.blocks([block]) == [part]
    assert builder.losses == ([] if part.reference else ["file_by_name_only"])


def test_a_file_can_be_only_a_name() -> None:
    assert Builder().files(["a.txt"]) == [FilePart("file/*", "a.txt", "")]
