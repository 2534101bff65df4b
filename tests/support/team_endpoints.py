"""The team endpoints of the API, and the speakers of their messages."""

from typing import Any

from chats.models import Chat
from tests.chats.api.programs import Program

PLANNER = {"roleId": "planner", "roleName": "Planner", "type": "ai"}
ANN = {"roleId": "ann", "roleName": "Ann", "type": "human"}


def build_team_message(
    content: object, speaker: object = ANN, *to: str, **more: object
) -> dict[str, Any]:
    """Return the body of a request that adds a message."""
    message = {"content": content, "speaker": speaker, **more}
    if to:
        message["routing"] = {"resolvedAddressees": list(to)}
    return {"message": message}


class TeamEndpoints:
    """The team endpoints of one chat."""

    def __init__(self, program: Program, chat: Chat) -> None:
        self.program = program
        self.path = f"chats/{chat.pk}/team"

    def add(self, content: object, speaker: object = ANN, *to: str, **more: object) -> Any:
        """Send a message."""
        return self.program.post(
            f"{self.path}/messages", build_team_message(content, speaker, *to, **more)
        )

    def listed(self) -> list[dict[str, Any]]:
        """Return all messages."""
        rows: list[dict[str, Any]] = self.program.get(f"{self.path}/messages").json()["data"]
        return rows

    def view(self) -> dict[str, Any]:
        """Return the task and the newest message."""
        found: dict[str, Any] = self.program.get(self.path).json()
        return found

    def context(self, agent: str = "planner", **options: object) -> Any:
        """Request an agent's context."""
        return self.program.post(f"{self.path}/context", {"agentId": agent, **options})

    def snapshot(self) -> dict[str, Any]:
        """Return the exported state."""
        found: dict[str, Any] = self.program.get(f"{self.path}/snapshot").json()
        return found

    def read(self, snapshot: object) -> Any:
        """Import a state."""
        return self.program.post(f"{self.path}/snapshot", {"snapshot": snapshot})
