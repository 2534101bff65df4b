"""Images count towards the byte limit of a policy, if the model gets them."""

import io
import os
from datetime import datetime
from typing import Any

import pytest
from django.test import Client
from PIL import Image
from pytest_django.fixtures import Settings

from chats.models import Chat, MessageImage, StoredFile, Turn
from chats.prompt import composition
from chats.teams import rosters
from chats.teams.team_drafts import AgentDraft
from contextpolicy.models import ModelSpec
from tests.chats.api.conftest import set_policy
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code
from tests.support.file_uploads import Read
from tests.support.files_in_chats import Work, get_accepted_turn
from tests.support.team_rounds import draft_team

__all__ = ["set_policy"]


def make_noise() -> bytes:
    """Return an image of about 90 kB, also after compression."""
    held = io.BytesIO()
    Image.frombytes("RGB", (200, 150), os.urandom(200 * 150 * 3)).save(held, "PNG")
    return held.getvalue()


@pytest.mark.parametrize("takes_images", [True, False])
def test_an_image_above_the_byte_limit_is_refused_if_the_model_gets_it(
    read: Read,
    send: Any,
    work: Work,
    demo_model: ModelSpec,
    set_policy: Any,
    *,
    takes_images: bool,
) -> None:
    set_policy(max_bytes=20_000)
    ModelSpec.objects.filter(pk=demo_model.pk).update(takes_images=takes_images)
    own = read(make_noise(), "noise.png")
    assert (StoredFile.objects.get(pk=own["id"]).copy_size or 0) > 20_000
    turn = get_accepted_turn(send(own["id"]))
    work(turn)
    turn = Turn.objects.get(pk=turn.pk)
    if takes_images:
        assert turn.status == "failed"
        assert "max_bytes 20,000" in turn.error_sentence
    else:
        assert turn.status == "completed"


@pytest.mark.parametrize("takes_images", [True, False])
def test_images_in_a_team_are_limited_by_the_policy(
    chat: Chat,
    set_policy: Any,
    send: Any,
    work: Work,
    demo_model: ModelSpec,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    *,
    takes_images: bool,
) -> None:
    """An agent gets the images that its own tools returned."""
    ModelSpec.objects.filter(pk=demo_model.pk).update(takes_images=takes_images)
    team = draft_team(AgentDraft(name="Ann"), max_bytes=10_000)
    chat.team = rosters.create_team(user=chat.owner, draft=team, shared=False, now=now).team
    chat.save()
    set_policy(max_bytes=20_000)
    given: list[Any] = []
    real = composition.ask_engine

    def record(asked: Any) -> Any:
        given.append(asked)
        return real(asked)

    monkeypatch.setattr(composition, "ask_engine", record)
    work(get_accepted_turn(send()))
    # The lower limit of the team applies to texts alone, that of the policy to the whole request.
    assert given[-1].values.max_bytes == 10_000
    assert given[-1].image_limit == (20_000 if takes_images else None)


def test_a_message_whose_image_has_no_room_is_refused(
    read: Read, send: Any, work: Work, of_alice: Program, settings: Settings
) -> None:
    own = read(make_noise(), "noise.png")
    turn = get_accepted_turn(send(own["id"]))
    work(turn)
    row = StoredFile.objects.get()
    settings.FILES_PER_USER_BYTES = row.size + 2 * row.copy_size
    assert read_status_and_code(send(own["id"])) == (409, "file_quota_exceeded")
    # An edited message stores its images once more.
    chat, message = turn.branch.chat_id, turn.trigger_id
    edited = of_alice.post(f"chats/{chat}/messages/{message}/edit", {"text": "And now?"})
    assert read_status_and_code(edited) == (409, "file_quota_exceeded")
    page = Client()
    page.force_login(turn.branch.chat.owner)
    shown = page.post(f"/chats/{chat}/messages", {"text": "Typed", "files": [own["id"]]})
    assert "Typed" in shown.content.decode()
    assert MessageImage.objects.count() == 1
    settings.FILES_PER_USER_BYTES += row.copy_size
    work(get_accepted_turn(send(own["id"])))
    assert MessageImage.objects.count() == 2
