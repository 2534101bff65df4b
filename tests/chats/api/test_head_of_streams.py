"""HEAD opens no event stream: the response has no body, and the stream would hold a place."""

import re
import uuid

from chats.api.core.schema import Generator
from chats.models import Turn
from chats.streams.connection import STREAMS
from tests.chats.api.programs import Program

EVENTS = "text/event-stream"
PARAMETER = re.compile(r"{(\w+)}")


def list_stream_paths() -> set[str]:
    """Return the paths of all operations that return an event stream."""
    schema = Generator().get_schema(public=True)  # type: ignore[no-untyped-call]  # untyped there
    return {
        path
        for path, methods in schema["paths"].items()
        for operation in methods.values()
        if any(EVENTS in each.get("content", {}) for each in operation["responses"].values())
    }


def test_head_is_refused_for_every_event_stream(of_alice: Program, turn: Turn) -> None:
    paths = list_stream_paths()
    assert any(path.endswith("/events") for path in paths)
    assert any(path.endswith("/stream") for path in paths)
    known = {"chat_id": str(turn.branch.chat_id), "turn_id": str(turn.pk), "client_id": "one"}
    for path in paths:
        url = PARAMETER.sub(lambda found: known.get(found[1], str(uuid.uuid4())), path)
        response = of_alice.client.head(url)
        # The list of messages has the path of an operation that can stream.
        allowed = {200} if url.endswith("/messages") else {405}
        assert response.status_code in allowed, path
        assert not response.headers["Content-Type"].startswith(EVENTS), path


def test_head_opens_no_stream_of_a_running_reply(of_alice: Program, turn: Turn) -> None:
    client_id = str(turn.branch.chat_id)
    response = of_alice.client.head(f"/api/v1/ui-chats/{client_id}/stream")
    assert response.status_code == 405
    STREAMS.check_room(int(turn.branch.chat.owner_id or 0))
