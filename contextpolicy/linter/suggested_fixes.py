"""Suggests fixes: the nearest values that solve a problem of a policy."""

from collections.abc import Callable, Mapping

from contextpolicy.engine.policy.budget import compute_low_mark, compute_prompt_limit
from contextpolicy.engine.policy.checks import SMALLEST_BYTES, SMALLEST_ROOM, estimate_tokens
from contextpolicy.engine.policy.fields import FIELDS
from contextpolicy.engine.policy.policy import PolicyValues, Problem, compute_default_reserve
from contextpolicy.linter.policy_warning import UNSET
from contextpolicy.linter.tools import list_known_names
from contextpolicy.models import ModelSpec, Skill

Fix = Mapping[str, object]
MARKS = tuple(
    f"{name}{suffix}"
    for name in ("compact_to", "prepare_at", "compact_at")
    for suffix in ("", "_tokens")
)


def suggest_fix(problem: Problem, values: PolicyValues) -> Fix:
    """Return values that solve a problem; empty if only a user can decide."""
    if problem.code == "lock_without_value":
        return _fix_locked_field(problem.fields[0], values)
    find = _FIXES.get(problem.code)
    return find(values) if find else {}


def _room(values: PolicyValues) -> int:
    """Return the number of tokens of the prompt limit that are left for one part."""
    return max(1, compute_prompt_limit(values, model_window=None) - SMALLEST_ROOM)


def _summary(values: PolicyValues) -> Fix:
    limit = compute_prompt_limit(values, model_window=None)
    low = compute_low_mark(values, prompt_limit=limit) - estimate_tokens(values.system_text)
    return {"summary_max_tokens": max(1, min(_room(values), low * 3 // 4))}


def _bytes(values: PolicyValues) -> Fix:
    return {"max_bytes": len(values.system_text.encode()) + 4 * SMALLEST_BYTES}


def _wider(values: PolicyValues) -> Fix:
    """Suggest a window large enough for the turns after which a summary is written."""
    turns = (values.turn_threshold or 0) + 1
    found: dict[str, object] = {}
    if values.window_size is not None and values.window_size < 2 * turns:
        found["window_size"] = 2 * turns
    if values.window_turns is not None and values.window_turns < turns:
        found["window_turns"] = turns
    return found


def _fix_kept_messages(values: PolicyValues) -> Fix:
    ceilings = [2 * values.window_turns] if values.window_turns is not None else []
    ceilings += [values.window_size] if values.window_size is not None else []
    return {"keep_last_messages": min([*ceilings, values.keep_last_messages])}


def _fix_locked_field(name: str, values: PolicyValues) -> Fix:
    """Suggest setting a locked field explicitly to its current value, which the lock requires."""
    value = getattr(values, name)
    return {name: value} if isinstance(value, int | float | str) and value != "" else {}


def _largest(name: str) -> Fix:
    return {name: FIELDS[name].largest}


def _headings(values: PolicyValues) -> Fix:
    headings = "".join(f"## {name}\n" for name in values.summary_sections)
    return {"summary_max_tokens": 2 * estimate_tokens(headings)}


def _models(values: PolicyValues) -> Fix:
    """Suggest removing models that do not exist. An empty list is never suggested."""
    known = set(ModelSpec.objects.values_list("slug", flat=True))
    found: dict[str, object] = {}
    for name in ("allowed_models", "file_models"):
        if left := [slug for slug in getattr(values, name) or () if slug in known]:
            found[name] = left
    if values.summarization_model not in {"", *known}:
        found["summarization_model"] = UNSET
    return found


def _skills(values: PolicyValues) -> Fix:
    known = set(Skill.objects.filter(group=None, team_id=None).values_list("slug", flat=True))
    return {"skills": [slug for slug in values.skills if slug in known] or UNSET}


def _tool_names(values: PolicyValues) -> Fix:
    known = list_known_names()
    return {"tools": [name for name in values.tools if name in known] or UNSET}


_FIXES: Mapping[str, Callable[[PolicyValues], Fix]] = {
    "reserve_exceeds_budget": lambda v: {"reserve_tokens": compute_default_reserve(v.token_budget)},
    "prompt_limit_too_small": lambda v: {
        "token_budget": max(v.token_budget, 2 * SMALLEST_ROOM),
        "reserve_tokens": UNSET,
    },
    "system_text_too_long": lambda v: {
        "token_budget": estimate_tokens(v.system_text) + 2 * SMALLEST_ROOM + v.reserve_tokens
    },
    "marks_out_of_order": lambda _: dict.fromkeys(MARKS, UNSET),
    "summary_too_large": _summary,
    "summary_reaches_low_mark": _summary,
    "keep_last_never_folds": lambda v: {"keep_last_messages": min(v.keep_last_messages, 30)},
    "keep_last_exceeds_window": _fix_kept_messages,
    "fold_exceeds_threshold": lambda v: {"fold_turns": v.turn_threshold},
    "window_below_threshold": _wider,
    "window_too_small": lambda _: {"window_tokens": SMALLEST_ROOM},
    "max_bytes_too_small": _bytes,
    "pins_too_large": lambda v: {"pins_tokens": _room(v)},
    "references_too_large": lambda v: {"reference_tokens": _room(v)},
    "reference_share_out_of_range": lambda _: {"reference_share": 0.45},
    "too_many_references": lambda _: _largest("reference_count"),
    "retention_too_long": lambda _: _largest("retention_days"),
    "question_prefix_too_long": lambda v: {
        "question_prefix": v.question_prefix[: FIELDS["question_prefix"].longest]
    },
    "headings_too_large": _headings,
    "unknown_model": _models,
    "unknown_skill": _skills,
    "unknown_tool": _tool_names,
}
