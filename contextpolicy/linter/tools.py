"""Checks the tools of a policy: names that do not exist, and definitions that leave no room."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.utils.translation import gettext, ngettext

from contextpolicy.engine.messages.messages import ToolSpec
from contextpolicy.engine.messages.skills import SKILL_LOAD_SPEC
from contextpolicy.engine.messages.tokens import ApproximateCounter, count_tool_tokens
from contextpolicy.engine.messages.tool_outputs import OUTPUT_READ_SPEC
from contextpolicy.engine.policy.allow_lists import is_name_allowed
from contextpolicy.engine.policy.budget import compute_prompt_limit, convert_provider_tokens
from contextpolicy.engine.policy.checks import estimate_tokens
from contextpolicy.engine.policy.policy import PolicyValues, Problem
from contextpolicy.linter.models import list_reply_models
from contextpolicy.linter.policy_warning import PolicyWarning
from contextpolicy.models import ModelSpec, Skill, ToolDefinition, ToolServer
from contextpolicy.tool_servers import load_allowed_tools

# From this share of the prompt limit on, definitions take the room of the history.
LARGE_SHARE = 0.5
# Validation has no tokenizer.
COUNTER = ApproximateCounter()


def find_tool_problems(values: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each allowed name that no stored tool or server has."""
    wanted = list(values.get("tools") or [])
    if not wanted:
        return []
    known = list_known_names()
    return [
        Problem(
            "unknown_tool",
            ("tools",),
            gettext(
                "Tool {name!r} does not exist. Choose another one, or read the definitions of its "
                "server first."
            ).format(name=name),
        )
        for name in wanted
        if name not in known
    ]


def list_known_names() -> set[str]:
    """Return the names that a policy can allow: `server/tool` and `server/*`."""
    tools = ToolDefinition.objects.values_list("server__slug", "name")
    servers = ToolServer.objects.values_list("slug", flat=True)
    return {f"{server}/{name}" for server, name in tools} | {f"{slug}/*" for slug in servers}


@dataclass(frozen=True, slots=True)
class ToolRoom:
    """The token counts of the tool definitions in a prompt, and the prompt limit.

    `place`: the policy or the model that sets the limit. The limit is in local tokens.
    """

    limit: int
    place: str
    definitions: Sequence[int]

    @property
    def tokens(self) -> int:
        return sum(self.definitions)


def find_tool_warnings(values: PolicyValues) -> Iterator[PolicyWarning]:
    """Yield warnings about tool definitions that leave little or no room in a prompt."""
    room = min(list_tool_rooms(values), key=lambda each: each.limit - each.tokens)
    tokens, limit = room.tokens, room.limit
    if not tokens:
        return
    system = estimate_tokens(values.system_text)
    if tokens + system >= limit:
        yield PolicyWarning(
            "tools_do_not_fit",
            "tools",
            ngettext(
                "The definition of {n} tool takes {tokens:,} tokens, and the system text "
                "{system:,}. {place} allows {limit:,} tokens in a prompt, so every turn would be "
                "refused. Allow fewer tools or raise token_budget.",
                "The definitions of {n} tools take {tokens:,} tokens, and the system text "
                "{system:,}. {place} allows {limit:,} tokens in a prompt, so every turn would be "
                "refused. Allow fewer tools or raise token_budget.",
                len(room.definitions),
            ).format(
                n=len(room.definitions),
                tokens=tokens,
                system=system,
                limit=limit,
                place=room.place,
            ),
            "risk",
        )
    elif tokens > LARGE_SHARE * limit:
        yield PolicyWarning(
            "tools_take_half",
            "tools",
            gettext(
                "The tool definitions use {tokens:,} of {limit:,} prompt tokens, more than the "
                "history."
            ).format(tokens=tokens, limit=limit),
        )


def list_tool_rooms(values: PolicyValues) -> list[ToolRoom]:
    """Return the tool definitions and the limit of the policy itself, and of each model with tools.

    The policy itself is included if no model supports tools, or if a model has no allow-list.
    """
    rows = load_allowed_tools(values.tools)
    skills = [SKILL_LOAD_SPEC] if has_loadable_skills(values) else []
    models = [model for model in list_reply_models(values) if model.supports_tools]
    rooms = []
    if not models or any(model.tools is None for model in models):
        limit = compute_prompt_limit(values, model_window=None)
        rooms.append(ToolRoom(limit, gettext("This policy"), count_definitions(rows, skills)))
    for model in models:
        own = [row for row in rows if model.tools is None or is_name_allowed(str(row), model.tools)]
        limit = compute_local_limit(values, model)
        rooms.append(ToolRoom(limit, str(model), count_definitions(own, skills)))
    return rooms


def has_loadable_skills(values: PolicyValues) -> bool:
    """Return True if the policy selects an enabled skill with text or files to load on demand."""
    rows = Skill.objects.filter(slug__in=values.skills, group=None, team_id=None, enabled=True)
    loadable = Q(mode=Skill.Mode.ON_DEMAND) | Q(stored_files__isnull=False)
    return bool(values.skills) and rows.filter(loadable).exists()


def count_definitions(rows: Sequence[ToolDefinition], skills: Sequence[ToolSpec]) -> list[int]:
    """Return the token counts of the definitions in every prompt.

    These are the tools on tool servers and the built-in tools. The search tool and the file tool
    are not counted, because they are offered only in prompts that omit content.
    """
    built_in = [*skills, *([OUTPUT_READ_SPEC] if rows else [])]
    return [
        *(row.tokens for row in rows),
        *(count_tool_tokens((spec,), COUNTER) for spec in built_in),
    ]


def compute_local_limit(values: PolicyValues, model: ModelSpec) -> int:
    """Return the prompt limit of a model in local tokens."""
    limit = compute_prompt_limit(values, model_window=model.window)
    return convert_provider_tokens(limit, calibration=model.calibration)
