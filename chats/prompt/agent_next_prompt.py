"""Estimates the size of an agent's next prompt from the chat's next prompt, without queries."""

from dataclasses import replace

from chats.prompt import composition
from chats.prompt.agents import AgentView, Seen, apply_agent_view
from chats.prompt.next_prompt import Outlook
from contextpolicy.engine.compose.assembly import AssembledContext
from contextpolicy.engine.team.team_view import compute_agent_window


def estimate_agent_tokens(outlook: Outlook, *, view: AgentView) -> int:
    """Estimate the tokens, as the provider counts them, of an agent's prompt for the next message.

    `outlook` is the chat's next prompt, which is composed again as the agent sees it. The agent's
    own policy is ignored. Returns the prompt limit if the prompt does not fit after
    `composition.MOST_MOVES` window moves. Raises `composition.PromptRefused`.
    """
    plain = outlook.given
    before = plain.last_seq
    shown_from = compute_agent_window(before, size=view.window_size)
    unloaded = plain.unloaded
    if unloaded is not None:
        first, last = unloaded
        unloaded = (max(first, shown_from + 1), last) if last > shown_from else None
    given = replace(
        plain,
        question=tuple(view.seen(message, counter=plain.counter) for message in plain.question),
        history=tuple(message for message in plain.history if message.seq > shown_from),
        unloaded=unloaded,
    )
    seen = Seen(question=None, before=before, steps=(), opening=None, duplicate=0)
    given = apply_agent_view(given, view=view, seen=seen, counter=plain.counter)
    for _ in range(composition.MOST_MOVES):
        made = composition.ask_engine(given)
        if isinstance(made, AssembledContext):
            return round(made.prompt_tokens * plain.calibration)
        given = replace(given, window_to=made.to_seq)
    return outlook.sent.budget.prompt_limit
