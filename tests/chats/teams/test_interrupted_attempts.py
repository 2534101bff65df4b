"""An agent that tries again sees the tools that its interrupted attempt called."""

from collections.abc import Callable

import pytest

from chats.models import Message, Turn
from chats.providers.base import TextDelta
from chats.record.message_commitments import seal_message
from chats.turns.follow_up_turns import retry_turn
from tests.support.team_rounds import TeamPlay, script_reply

Plays = Callable[..., TeamPlay]
pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("built_again")
@pytest.mark.parametrize("independent", [False, True])
def test_a_retry_of_an_agent_has_its_calls(play: Plays, *, independent: bool) -> None:
    game = play("Max", "Ivy", independent=independent)
    game.ask("@Max Send the mail.")
    turn = game.queued()
    assert turn is not None
    game.work(turn, [TextDelta("Sending")])
    row = Message.objects.get(turn=turn, role="assistant")
    row.parts = [
        {"type": "text", "text": "Sending."},
        {"type": "tool_call", "call_id": "c1", "name": "mail__send", "arguments": "{}"},
        {"type": "tool_result", "call_id": "c1", "name": "mail__send", "content": "Sent."},
    ]
    row.kept = True
    row.token_count = None
    seal_message(row).save()
    failed = Turn.objects.get(pk=turn.pk)
    assert failed.status == "failed"
    again = retry_turn(user=game.user, turn=failed, now=game.now)
    (sent,) = game.work(again, script_reply("Done.")).scripted.requests
    assert [wire.role for wire in sent.messages][-3:] == ["user", "assistant", "tool"]
    assert "Send the mail." in sent.messages[-3].content
    assert sent.messages[-1].content == "Sent."
