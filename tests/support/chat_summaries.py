"""Chats with summaries: scripts of the summariser, the active summary, and the next prompt."""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from chats.compaction.coverage import get_active_summary
from chats.models import Branch, Chat, Compaction, Turn
from chats.prompt import built_prompt, composition
from chats.providers.base import Finished, ProviderRequest, TextDelta, UsageReport
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import PolicyVersion
from tests.support.scripted_worker import ScriptedProvider

Work = Callable[..., Any]
Say = Callable[..., Turn]
Fold = Callable[..., Compaction]
Writes = Callable[..., ScriptedProvider]
SetPolicy = Callable[..., PolicyVersion]
SENTENCE = "The order 4711 of 3 May 2026 goes to Anna Berg in Oslo, see https://a.example/4711. "
GOOD_SUMMARY = """## Facts
- The order 4711 of 3 May 2026 goes to Anna Berg in Oslo [#1, #2]
## Preferences
## Decisions
## Open items
## Done items
"""
SMALL_POLICY: dict[str, Any] = {
    "strategy": "dynamic_summary",
    "token_budget": 2400,
    "reserve_tokens": 400,
    "keep_last_messages": 2,
    "summary_max_tokens": 400,
    # High enough for a summary to be prepared at the first threshold.
    "compact_to": 0.6,
}


def reload_branch(chat: Chat) -> Branch:
    """Reload the active branch."""
    chat.refresh_from_db()
    return Branch.objects.select_related("active_compaction__base", "chat").get(
        pk=cast(uuid.UUID, chat.active_branch_id)
    )


def find_active_summary(chat: Chat) -> Compaction | None:
    """Return the active summary of the active branch."""
    return get_active_summary(reload_branch(chat).active_compaction)


def script_summary(text: str = GOOD_SUMMARY, finish: Any = "stop") -> list[Any]:
    """Return the script of a summariser that answers with a text."""
    return [TextDelta(text), UsageReport(1000, 100, 0, 0), Finished(finish)]


def get_summary_prompt(request: ProviderRequest) -> str:
    """Return the text of a request to the summariser."""
    return request.messages[-1].content


def compose_next_prompt(chat: Chat) -> tuple[str, list[str]]:
    """Return hash and content of the prompt that the last turn's question would get now."""
    branch = reload_branch(chat)
    turns = Turn.objects.select_related("branch__chat", "model", "trigger", "continues")
    turn = turns.filter(branch=branch).order_by("-accepted").first()
    assert turn is not None
    made = composition.compose_prompt(turn=turn, counter=ApproximateCounter())
    assert isinstance(made, built_prompt.Prompt), made
    return made.receipt_fields["prompt_sha256"], [m.content for m in made.request.messages]


def add_minutes(now: datetime, minutes: int = 1) -> datetime:
    """Return a time after noon."""
    return now + timedelta(minutes=minutes)


def compose_system_text(chat: Chat) -> str:
    """Return the system text of the prompt that the last turn's question would get now."""
    return compose_next_prompt(chat)[1][0]
