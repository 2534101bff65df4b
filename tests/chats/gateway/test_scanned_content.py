"""The scanner checks the images and documents of requests, stored or not."""

import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django.fixtures import Settings

from chats.files import scanning
from chats.models import ApiKey, Message, MessageImage
from contextpolicy.models import AuditEvent
from tests.chats.files.conftest import own_folder
from tests.chats.files.sample_files import make_png
from tests.support.gateway_clients import GatewayClient, assistant, call, get_client_key, user
from tests.support.gateway_conversations import call_conversations, create_conversation
from tests.support.gateway_files import (
    PNG,
    build_file_message,
    build_image_message,
    build_image_url,
    respond_to_parts,
    upload_file,
)

__all__ = ["own_folder"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("working")]

SCANNER = """
import sys
with open({log!r}, "a") as log:
    log.write("scan ")
data = open(sys.argv[1], "rb").read()
sys.exit(3 if b"broken" in data else 1 if b"virus" in data else 0)
"""
BAD = PNG + b" and a virus"
REFUSED = (409, "file_not_read")


@pytest.fixture(autouse=True)
def scans(settings: Settings, tmp_path: Path) -> Path:
    """Configure a scanner that refuses the word `virus`. Return the log of its scans."""
    program, log = tmp_path / "scan.py", tmp_path / "scans"
    program.write_text(SCANNER.format(log=str(log)))
    settings.FILE_SCAN = f"{sys.executable} {program}"
    return log


def refuse(answer: Any) -> tuple[int, str]:
    """Return status and code of a response with an error."""
    return answer.status, answer.json["error"]["code"]


def in_a_user_message(program: GatewayClient, data: bytes) -> Any:
    return program.ask([build_image_message(build_image_url(data))])


def in_a_file_part(program: GatewayClient, data: bytes) -> Any:
    return program.ask([build_file_message(file_data=build_image_url(data), filename="a.png")])


def in_an_earlier_message(program: GatewayClient, data: bytes) -> Any:
    return program.ask(
        [build_image_message(build_image_url(data)), assistant("A harbour."), user("Where?")]
    )


def in_a_tool_result(program: GatewayClient, data: bytes) -> Any:
    image = {"type": "image_url", "image_url": {"url": build_image_url(data)}}
    result = {"role": "tool", "tool_call_id": "c1", "content": [image]}
    return program.ask([user("Show me."), assistant(None, call("c1")), result])


def in_responses(program: GatewayClient, data: bytes) -> Any:
    return respond_to_parts(program, {"type": "input_image", "image_url": build_image_url(data)})


def in_a_compaction_item(program: GatewayClient, data: bytes) -> Any:
    content = [{"type": "input_image", "image_url": build_image_url(data)}]
    body: Any = {"model": "demo", "input": [{"role": "user", "content": content}]}
    item = program.close(program.open(body, path="responses/compact")).json["output"][0]
    body = {"model": "demo", "input": [item, {"role": "user", "content": "Where?"}]}
    response = program.open(body, path="responses")
    if response.streaming:
        program.work(response["X-Context-Report-Id"])
    return program.close(response)


WAYS = [
    in_a_user_message,
    in_a_file_part,
    in_an_earlier_message,
    in_a_tool_result,
    in_responses,
    in_a_compaction_item,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_refused_image_is_neither_stored_nor_sent(
    way: Any, program: GatewayClient, alice: User
) -> None:
    answer = way(program, BAD)
    assert refuse(answer) == REFUSED
    assert "virus scanner" in answer.json["error"]["message"]
    assert answer.json["error"]["param"] in ("messages", "input")
    assert not program.requests
    assert not Message.objects.exists()
    assert not MessageImage.objects.exists()
    event = AuditEvent.objects.get(type="file.refused")
    assert event.actor == f"user:{alice.pk}"
    assert event.data == {"bytes": len(BAD), "kind": "image"}


@pytest.mark.parametrize("way", WAYS)
def test_a_clean_image_is_sent(way: Any, program: GatewayClient) -> None:
    assert way(program, PNG).status == 200
    assert MessageImage.objects.count() == 1


def test_an_item_with_a_refused_image_is_not_added_to_a_conversation(
    program: GatewayClient,
) -> None:
    named = create_conversation(program)
    content = [{"type": "input_image", "image_url": build_image_url(BAD)}]
    item = {"type": "message", "role": "user", "content": content}
    status, told = call_conversations(program, "POST", f"/{named}/items", {"items": [item]})
    assert (status, told["error"]["code"], told["error"]["param"]) == (*REFUSED, "items")
    assert not Message.objects.exists()


@pytest.mark.parametrize("is_passed_on", [True, False], ids=["pass-through", "dry run"])
@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (build_image_message(build_image_url(BAD)), "image"),
        (
            build_file_message(
                file_data=build_image_url(b"a virus", "text/plain"), filename="a.txt"
            ),
            "text",
        ),
    ],
    ids=["image", "document"],
)
def test_requests_that_are_not_stored_are_scanned_too(
    is_passed_on: bool, message: Any, kind: str, program: GatewayClient, alice: User
) -> None:
    headers = {} if is_passed_on else {"X-Context-Dry-Run": "true"}
    if is_passed_on:
        ApiKey.objects.filter(pk=get_client_key(program).pk).update(unmanaged=True)
    assert refuse(program.ask([message], headers=headers)) == REFUSED
    assert not program.requests
    event = AuditEvent.objects.get(type="file.refused")
    assert (event.actor, event.data["kind"]) == (f"user:{alice.pk}", kind)


def test_an_image_that_cannot_be_scanned_is_refused_until_it_can(
    program: GatewayClient, settings: Settings
) -> None:
    answer = program.ask([build_image_message(build_image_url(PNG + b" broken"))])
    assert refuse(answer) == REFUSED
    assert not AuditEvent.objects.filter(type="file.refused").exists()
    settings.FILE_SCAN = ""
    assert program.ask([build_image_message(build_image_url(PNG + b" broken"))]).status == 200


def test_an_image_that_the_client_repeats_is_scanned_once(
    program: GatewayClient, scans: Path
) -> None:
    first = program.ask([build_image_message(build_image_url())])
    said = [build_image_message(build_image_url()), assistant(first.text), user("And?")]
    assert program.ask(said).status == 200
    assert scans.read_text().split() == ["scan"]
    # A refused one is scanned again, so that a corrected scanner accepts it at once.
    program.ask([build_image_message(build_image_url(BAD))])
    program.ask([build_image_message(build_image_url(BAD))])
    assert scans.read_text().split() == ["scan"] * 3


def test_new_signatures_apply_to_images_that_were_clean(
    program: GatewayClient, scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "CLEAN_SECONDS", 0)
    program.ask([build_image_message(build_image_url())])
    program.ask([build_image_message(build_image_url())])
    assert scans.read_text().split() == ["scan"] * 2


def test_an_image_that_is_named_by_its_id_was_scanned_as_an_upload(
    program: GatewayClient, alice: User, scans: Path
) -> None:
    row = upload_file(make_png(), alice, "chart.png")
    assert program.ask([build_file_message(file_id=str(row.pk))]).status == 200
    assert scans.read_text().split() == ["scan"]


def test_a_refused_document_is_scanned_again(program: GatewayClient, settings: Settings) -> None:
    sent = build_file_message(file_data=build_image_url(b"a virus", "text/plain"), filename="a.txt")
    assert refuse(program.ask([sent])) == REFUSED
    assert refuse(program.ask([sent])) == REFUSED
    settings.FILE_SCAN = ""
    assert program.ask([sent]).status == 200
