"""Long texts are stored compressed. Readers and writers see the original text."""

import importlib
import json
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.db import connection as database
from django.db.migrations.executor import MigrationExecutor

from chats.models import Chat, Message
from chats.models.parts import DEFLATED, LONG
from tests.chats.api.programs import Program
from tests.support.team_endpoints import PLANNER, TeamEndpoints

SENTENCE = "In {0} the heron at pond {1} took {2} frogs. "
SENTENCES = [SENTENCE.format(year, year % 17, year % 7) for year in range(3_999)]
LONG_TEXT = "".join(SENTENCES)[:30_000]


def stored(message: UUID | str) -> str:
    """Return the stored value of the column."""
    with database.cursor() as cursor:
        value = Message._meta.get_field("id").get_db_prep_value(UUID(str(message)), database)
        cursor.execute("SELECT CAST(parts AS text) FROM chats_message WHERE id = %s", [value])
        return str(cursor.fetchone()[0])


def rows_of(chat: Chat) -> list[Message]:
    return list(Message.objects.filter(branch__chat=chat).order_by("seq"))


@pytest.mark.requirement("S3.12", by="integrator")
def test_a_long_text_takes_little_room_and_comes_back_as_it_was(
    team: TeamEndpoints, chat: Chat
) -> None:
    team.add(LONG_TEXT, PLANNER)
    team.add("Short.", PLANNER)
    first, second = team.program.get(f"{team.path}/messages").json()["data"]
    assert (first["content"], second["content"]) == (LONG_TEXT, "Short.")
    long, short = rows_of(chat)
    assert long.parts == [{"type": "text", "text": LONG_TEXT}]
    assert len(stored(long.pk)) < len(LONG_TEXT) * 0.4
    assert LONG_TEXT[:30] not in stored(long.pk)
    assert json.loads(stored(short.pk)) == short.parts


@pytest.mark.requirement("S3.12", by="integrator")
def test_an_erasure_leaves_nothing_of_a_long_text(
    team: TeamEndpoints, chat: Chat, of_alice: Program
) -> None:
    team.add(LONG_TEXT, PLANNER)
    (row,) = rows_of(chat)
    assert of_alice.post(f"chats/{chat.pk}/messages/{row.pk}/erase").status_code == 200
    assert json.loads(stored(row.pk)) == []


def test_every_length_and_script_comes_back(chat: Chat, team: TeamEndpoints) -> None:
    for length in (0, 1, LONG - 40, LONG - 35, LONG, LONG + 1):
        for letter in ("x", "鷺", "😀", "\n", '"', "é"):
            team.add(letter * length, PLANNER)
    texts = [row.text for row in rows_of(chat)]
    assert texts == [
        letter * length
        for length in (0, 1, LONG - 40, LONG - 35, LONG, LONG + 1)
        for letter in ("x", "鷺", "😀", "\n", '"', "é")
    ]


def test_parts_cannot_pose_as_compressed_ones(team: TeamEndpoints, chat: Chat) -> None:
    posing = json.dumps({DEFLATED: "x"})
    team.add(posing, PLANNER)
    (row,) = rows_of(chat)
    assert row.text == posing


def test_texts_from_before_are_read_and_the_release_before_reads_ours(
    team: TeamEndpoints, chat: Chat
) -> None:
    team.add(LONG_TEXT, PLANNER)
    team.add("Short.", PLANNER)
    long = rows_of(chat)[0]
    migration = importlib.import_module("chats.migrations.0025_long_parts")
    before = MigrationExecutor(database).loader.project_state(("chats", "0024_message_cap")).apps
    migration.unpack(before, SimpleNamespace(connection=database))
    assert json.loads(stored(long.pk)) == [{"type": "text", "text": LONG_TEXT}]
    assert [row.text for row in rows_of(chat)] == [LONG_TEXT, "Short."]
