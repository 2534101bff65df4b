"""Documents in the chats of teams: an agent whose window leaves one out gets its parts."""

import uuid
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, FileExcerpt, Turn
from chats.teams import rosters
from chats.teams.team_drafts import AgentDraft
from chats.turns.start import start_turn
from contextpolicy.models import ModelSpec
from tests.support.file_uploads import Read
from tests.support.files_in_chats import Work
from tests.support.team_rounds import draft_team, script_reply

BUDGET = "The lighthouse repair budget is 48,213 euros."
DOCUMENT = f"{'Nothing of interest happens here. ' * 60}{BUDGET}"


@pytest.mark.usefixtures("built_again")
def test_an_agent_gets_parts_of_a_document_that_its_window_leaves_out(
    chat: Chat, alice: User, read: Read, work: Work, demo_model: ModelSpec, now: datetime
) -> None:
    ModelSpec.objects.update(supports_tools=True)
    team = draft_team(AgentDraft(name="Ann", window_size=2), AgentDraft(name="Bob", window_size=50))
    chat.team = rosters.create_team(user=alice, draft=team, shared=False, now=now).team
    chat.save()
    file = uuid.UUID(read(DOCUMENT.encode(), "harbour.txt")["id"])
    requests: dict[str, Any] = {}

    def ask(text: str, *files: uuid.UUID) -> None:
        chat.refresh_from_db()
        start_turn(user=alice, chat=chat, text=text, now=now, files=files)
        while turn := Turn.objects.filter(status=Turn.Status.QUEUED).order_by("accepted").first():
            worker = work(turn, script_reply("I see."))
            if turn.agent is not None:
                requests[turn.agent.name] = worker.scripted.requests[-1]

    ask("Read this", file)
    assert not FileExcerpt.objects.exists()
    ask("Any other thing")
    ask("How much is the lighthouse repair budget?")
    for name, request in requests.items():
        text = "\n".join(message.content for message in request.messages)
        assert BUDGET in text, name
        assert ("(harbour.txt)" in text) is (name == "Ann")
    assert {row.turn.agent.name for row in FileExcerpt.objects.all() if row.turn.agent} == {"Ann"}
    assert "file_read" in {tool.name for tool in requests["Ann"].tools}
