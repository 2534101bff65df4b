"""A worker whose calls go to a local server, and the comparison of sent with rebuilt bytes."""

from typing import Any

from chats.models import Receipt, Turn
from chats.prompt.reconstruction import rebuild_request
from chats.prompt.sent_request import build_body_json, compare_body_hash
from chats.providers import registry
from chats.providers.base import Timeouts
from contextpolicy.engine.messages.segments import compute_text_ref
from tests.chats.rebuilding import not_rebuilt
from tests.fakes.fake_server import FakeServer
from tests.support.scripted_worker import InlineWorker


class WireWorker(InlineWorker):
    """A worker whose calls go to the server."""

    def provider(self, account: Any) -> Any:
        """Return the adapter."""
        return registry.get_provider(account, timeouts=Timeouts())

    async def whole_turn(self, turn: Turn) -> None:
        """Process a turn and close the connections."""
        await self.turn(turn.pk)
        await registry.aclose_all()


def check_rebuilt_requests(server: FakeServer) -> None:
    """Compare the sent bytes with the rebuilt ones and with the receipts."""
    assert not_rebuilt() == []
    rows = Receipt.objects.select_related("effective_policy", "turn__branch__chat__owner")
    rows = rows.filter(model_name="fake-chat")
    sent = sorted(record["body_sha256"] for record in server.requests())
    assert sorted(compute_text_ref(build_body_json(rebuild_request(row))) for row in rows) == sent
    assert sorted(row.body_sha256 for row in rows) == sent
    assert {compare_body_hash(rebuild_request(row)) for row in rows} == {"same"}
