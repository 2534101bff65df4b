"""Team messages as callers send them."""

from contextpolicy.engine.team.team_state import TeamState


def said(
    content: object = "Hello",
    *,
    by: str = "ann",
    name: str | None = None,
    kind: str = "human",
    to: tuple[str, ...] | None = None,
    **fields: object,
) -> dict[str, object]:
    """A message in its JSON form."""
    speaker = {"roleId": by, "roleName": name or by.title(), "type": kind}
    routing = {} if to is None else {"routing": {"resolvedAddressees": list(to)}}
    return {"content": content, "speaker": speaker, **routing, **fields}


def team(*contents: str) -> TeamState:
    """A team with these messages by Ann."""
    state = TeamState()
    for content in contents:
        state.add_message(said(content))
    return state
