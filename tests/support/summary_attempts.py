"""Attempts at summaries: rejected ones, and a policy under which one request is enough."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from chats.compaction import maintain
from chats.compaction.people import controls
from chats.models import Chat, Compaction
from chats.providers.base import Finished, ReasoningDelta, TextDelta, ToolCallDelta
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.support.chat_summaries import GOOD_SUMMARY, find_active_summary, script_summary

# The thresholds of the small policy, with a limit that lets one request read the whole chat.
SUMMARY_IN_ONE_REQUEST = {
    "token_budget": 4_000,
    "prepare_at_tokens": 1_400,
    "compact_at_tokens": 1_800,
    "compact_to_tokens": 1_200,
}
REJECTED_SUMMARIES: dict[str, list[Any]] = {
    "empty": script_summary(""),
    "cut_by_length": script_summary(GOOD_SUMMARY, "length"),
    "not_finished": script_summary(GOOD_SUMMARY, "none"),
    "reasoning_only": [ReasoningDelta("hm"), Finished("stop")],
    "tool_call": [TextDelta(GOOD_SUMMARY), ToolCallDelta(0, "c", "rm", "{}"), Finished("stop")],
    "refusal": script_summary("I'm sorry, but I cannot help with that."),
    "error_text": script_summary('{"error": {"message": "Rate limit reached"}}'),
    "missing_sections": script_summary("Anna Berg ordered 4711 and all was well in the end."),
    "role_headers": script_summary(GOOD_SUMMARY + "\nUser: and now?\nAssistant: well"),
    "unknown_url": script_summary(GOOD_SUMMARY.replace("Oslo", "https://evil.example/x")),
    "not_smaller": script_summary(GOOD_SUMMARY * 60),
}
COUNTER = ApproximateCounter()


def compact_chat(user: User, chat: Chat, now: datetime, **wishes: str) -> Compaction:
    """Request a compaction and let a worker run it."""
    controls.compact_now(user=user, chat=chat, now=now, **wishes)
    maintain.maintain_chat_context(chat_id=chat.pk, counter=COUNTER, now=now)
    row = find_active_summary(chat)
    assert row is not None
    return row
