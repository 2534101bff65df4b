"""The built-in policies of a new instance, and the one that initially applies to everyone.

They are starting points: administrators may change, retire or ignore them, and a restart does not
undo that. A field that a preset does not set has the default of its strategy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from contextpolicy.models import ContextPolicy, PolicyAssignment
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

SYSTEM = "system"
DEMO = "demo"


@dataclass(frozen=True, slots=True)
class Preset:
    """A built-in policy: its slug, its texts, and the values that it sets."""

    slug: str
    name: str
    description: str
    values: Mapping[str, Any]


# Dates, and excerpts of earlier messages for each question. Built-in policies have them; existing
# policies keep their prompts unchanged.
RETRIEVED: Mapping[str, Any] = {
    "dates": True,
    "references": True,
    "reference_scope": "chat",
    "reference_share": 0.45,
    "reference_count": 200,
    "reference_floor": 1,
}

LONG_CHATS = Preset(
    "long-chats",
    "Long chats",
    "Sends everything until the prompt is nearly full, then replaces the oldest part by a summary "
    "that was prepared in the background. Counts tokens only, so short chats are never touched.",
    {"strategy": "dynamic_summary", "turn_threshold": None, **RETRIEVED},
)

# Coding agents send long instructions, whole files and their tools with each request. The budget
# exceeds every window, so the model's window applies, or the one that its server reports.
CODING_AGENTS = Preset(
    "coding-agents",
    "Coding agents",
    "For Claude Code, Codex and similar clients: prompts may fill the model's context window, and "
    "the oldest part is replaced by a summary when they do. Retrieved context is off. New API keys "
    "for /v1 use it.",
    {
        "strategy": "dynamic_summary",
        "turn_threshold": None,
        "token_budget": 1_000_000,
        "reserve_tokens": 16_000,
        "keep_last_messages": 20,
        "summary_max_tokens": 4_000,
        "input_length_limit": 1_000_000,
        "references": False,
        "dates": False,
    },
)

PRESETS = (
    LONG_CHATS,
    CODING_AGENTS,
    Preset(
        "rounds",
        "Summary by turns",
        "Summarises the oldest 5 turns (a question and its reply) once a prompt has more than 10, "
        "or earlier if it fills up.",
        {"strategy": "dynamic_summary", "turn_threshold": 10, "fold_turns": 5, **RETRIEVED},
    ),
    Preset(
        "simple-window",
        "Simple window",
        "Sends the newest messages only, each cut to a length: 12 messages of 4,000 characters, "
        "unless the server's settings HISTORY_WINDOW and MAX_CHARS_PER_MESSAGE say otherwise.",
        {"strategy": "simple", **RETRIEVED},
    ),
    Preset(
        "sliding-window",
        "Sliding window",
        "Sends as much of the newest history as fits the token budget and moves on in batches. "
        "Writes no summaries.",
        {"strategy": "sliding_window", **RETRIEVED},
    ),
    Preset(
        "support",
        "Support desk",
        "For short questions about a product: a small window, no summary, brief answers.",
        {
            **RETRIEVED,
            "strategy": "sliding_window",
            "token_budget": 12_000,
            "reserve_tokens": 2_000,
            "max_chars_per_message": 6_000,
            "cut_style": "head_tail",
            "system_text": (
                "You help customers with their questions. Answer briefly and in the customer's "
                "language. Ask back when an order number, a version or an error message is "
                "missing. If you do not know something, say so and name who can help."
            ),
        },
    ),
    Preset(
        "novelist",
        "Novelist",
        "For long texts written together: a large budget, many newest messages in full, and a "
        "long summary that keeps people, places and open threads.",
        {
            **RETRIEVED,
            "strategy": "dynamic_summary",
            "turn_threshold": None,
            "token_budget": 32_000,
            "reserve_tokens": 8_000,
            "keep_last_messages": 20,
            "summary_max_tokens": 4_000,
            "system_text": (
                "You write fiction together with the user. Keep to the voice, tense and point of "
                "view of what is written. Names, places and facts that were set stay as they are; "
                "point out contradictions instead of deciding them."
            ),
        },
    ),
    Preset(
        "booking",
        "Booking",
        "For filling in a form step by step: before each reply, the destination and the date are "
        "stored in a state, which is sent instead of the earlier messages.",
        {
            "strategy": "entity_state",
            "state_schema": {
                "type": "object",
                "properties": {
                    "destination": {"type": "string", "maxLength": 200, "title": "Destination"},
                    "date": {"type": "string", "format": "date", "title": "Date"},
                },
                "additionalProperties": False,
            },
            "token_budget": 12_000,
            "reserve_tokens": 2_000,
            "system_text": (
                "You help to book a trip. The destination and the date known so far stand under "
                "“Conversation state”. Ask for what is missing, one thing at a time; when both "
                "are there, repeat them and ask for a confirmation."
            ),
        },
    ),
    Preset(
        "messenger",
        "Messenger (中文)",
        "For chat apps that show plain text: short Chinese answers without any markup, the newest "
        "messages only.",
        {
            **RETRIEVED,
            "strategy": "simple",
            "window_size": 12,
            "max_chars_per_message": 4_000,
            "reserve_tokens": 2_000,
            "system_text": (
                "你在即时通讯软件里与用户对话。请用自然、简洁的中文回答，先说结论，再补充必要的说明。"
                "只输出纯文本：不要使用 Markdown、标题、列表符号、表格、代码块或链接格式。"
                "需要分点时，用“第一、第二”这样的文字。每次回答尽量不超过三个短段落。"
                "信息不足时先问一个最关键的问题；不确定的事情请直接说明，不要编造。"
            ),
        },
    ),
    # After six short rounds with the demo model (about 140 tokens each, so 840 of 2,000) the turn
    # trigger compacts the oldest three. The token marks are higher and apply to longer texts.
    Preset(
        DEMO,
        "Demo",
        "A small limit for demonstrations: about six short messages lead to a summary.",
        {
            "strategy": "dynamic_summary",
            "turn_threshold": 5,
            "fold_turns": 3,
            "token_budget": 2_600,
            "reserve_tokens": 600,
            "keep_last_messages": 4,
            "summary_max_tokens": 400,
            "input_length_limit": 3_000,
            "max_chars_per_message": 2_000,
        },
    ),
)


def seed_policies(*, now: datetime) -> None:
    """Create the missing built-in policies; existing ones are unchanged.

    A new instance starts with *Demo* for everyone, so that a user of the demo model sees a
    compaction after a few messages; `replace_demo_policy` later assigns another policy.
    """
    with transaction.atomic():
        existing = set(ContextPolicy.objects.values_list("slug", flat=True))
        made = {
            preset.slug: create_policy(
                slug=preset.slug,
                name=preset.name,
                description=preset.description,
                values=preset.values,
                actor=SYSTEM,
                now=now,
            )
            for preset in PRESETS
            if preset.slug not in existing
        }
        is_free = not PolicyAssignment.objects.filter(level="instance").exists()
        if DEMO in made and is_free:
            assign_policy(
                policy=made[DEMO], level="instance", actor=SYSTEM, now=now, is_agreed=True
            )


def replace_demo_policy(*, actor: str, now: datetime) -> bool:
    """Replace *Demo* with *Long chats* as the policy for everyone.

    Called when a real model becomes the default. Returns False and changes nothing if *Demo* is not
    assigned to everyone, or if *Long chats* is retired or missing.
    """
    is_demo = PolicyAssignment.objects.filter(level="instance", policy__slug=DEMO).exists()
    normal = ContextPolicy.objects.filter(slug=LONG_CHATS.slug, retired=False).first()
    if not is_demo or normal is None:
        return False
    assign_policy(policy=normal, level="instance", actor=actor, now=now, is_agreed=True)
    return True
