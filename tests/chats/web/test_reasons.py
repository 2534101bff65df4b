"""Every code that the domain gives has words on the pages, and in the administration."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

from chats.admin.words import RUNGS
from chats.compaction import coverage, question_embedding, summary_slots
from chats.compaction.report.skip_reasons import SENTENCES, TRIGGERS
from chats.models import Compaction, Receipt
from chats.prompt import agents, model_choice, next_prompt, person, prompt_skills
from chats.providers.base import ErrorCode
from chats.record import provided
from chats.record.states import StateChanged
from chats.turns import references
from chats.web import reasons, receipt_labels
from contextpolicy.engine import window
from contextpolicy.engine.compose import assembly, partition, system_text
from contextpolicy.engine.compose.agent_layouts import PROMPT_FORMS
from contextpolicy.engine.messages.segments import Origin
from contextpolicy.engine.messages.transcript import Background, TranscriptWriter
from contextpolicy.engine.policy.fields.prompt import Layout
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies import entity_state
from contextpolicy.engine.summaries import acceptance, compaction_plan, ladder
from contextpolicy.engine.text import fact_scanner

CHATS = Path(__file__).parents[3] / "chats"
# Failures of calls that offer tools; the call for a summary offers none.
OF_TOOLS = {"tools_unsupported", "too_many_tool_calls", "tool_call_too_long"}
# The functions that end a compaction with a reason.
ENDS = {
    "close_attempt",
    "record_failed_attempt",
    "retire_pending_summary",
    "retire_covering_summaries",
}


def test_every_kind_of_the_engine_has_words() -> None:
    tail = [name for name, _ in TranscriptWriter().background(Background())]

    assert set(receipt_labels.ORIGINS) == set(get_args(Origin))
    assert set(reasons.LEFT_OUT) == set(partition.REASONS)
    # The engine composes no prompt for the call that extracts a state.
    assert set(receipt_labels.PARTS) == {*system_text.ORDER, *tail, "tail", "schema"}
    assert set(receipt_labels.REPAIRS) == set(assembly.REPAIRS)
    ours = {"strategy", agents.ROUND_OPENING, *person.NOTES}
    ours |= {f"references:{note}" for note in (*references.NOTES, *person.WITHHOLDS_OTHERS)}
    ours |= {f"vectors:{note}" for note in question_embedding.NOTES}
    ours |= {f"{agents.PROMPT_FORM}:{form}" for form in PROMPT_FORMS}
    ours |= {provided.MISSING, provided.FAILED}
    ours |= {prompt_skills.SKILLS_COMPLETE, prompt_skills.SKILLS_LEFT_OUT}
    ours |= {prompt_skills.SKILL_FILES_LEFT_OUT}
    assert set(receipt_labels.CHANGES) == {*assembly.CHANGES, *ours}
    assert set(receipt_labels.FALLBACKS) == set(assembly.FALLBACKS)
    assert {"multi_turn", *receipt_labels.LAYOUTS} == set(get_args(Layout))
    assert set(reasons.WINDOW_REASONS) == set(get_args(window.MoveReason))
    assert tuple(reasons.FACT_KINDS) == fact_scanner.KINDS
    # No model writes a window.
    assert set(RUNGS) == {"", *ladder.RUNGS} - {"window"}


def test_every_way_of_sending_has_words() -> None:
    assert set(reasons.SENT) == {*get_args(next_prompt.Sent), "pinned", "unknown"}


def test_every_state_of_a_row_has_words() -> None:
    assert set(receipt_labels.CALL_OUTCOMES) == set(Receipt.Outcome)
    assert set(reasons.COMPACTION_STATES) == set(Compaction.Status)


def test_every_verdict_has_words() -> None:
    documented = acceptance.check_generated_summary.__doc__ or ""
    policy = {item.name for item in fields(PolicyValues)}
    codes = {part for part in documented.split("`")[1::2] if part.islower()}
    codes -= {"stop", "finish", "by_model", *policy}

    assert len(codes) > 10
    assert codes <= reasons.NOT_USED.keys()


def test_every_deed_and_fault_that_ends_a_compaction_has_words() -> None:
    written = {code for path in CHATS.rglob("*.py") for code in ending_codes(path)}
    faults = {*get_args(ErrorCode)} - OF_TOOLS | {model_choice.ModelUnavailable.code}

    assert len(written) > 5
    assert written | faults | {coverage.HANDED_BACK} <= reasons.NOT_USED.keys()


def ending_codes(path: Path) -> Iterator[str]:
    """Yield the reasons with which the functions of a module end compactions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        for keyword in node.keywords if name in ENDS else ():
            if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value)


def test_every_reason_to_keep_a_state_of_our_own_has_words() -> None:
    judged = {f"state_{name}" for name in get_args(entity_state.Outcome)}

    assert judged - {"state_updated", "state_unchanged"} <= reasons.STATE_KEPT.keys()
    assert {StateChanged.code, model_choice.ModelUnavailable.code} <= reasons.STATE_KEPT.keys()


def test_every_outcome_of_the_check_after_a_turn_has_a_sentence() -> None:
    refused = {
        refusal.code
        for refusal in (
            model_choice.NoModel,
            model_choice.ModelNotAllowed,
            model_choice.PolicyRefused,
        )
    }
    decided = {*get_args(compaction_plan.Refusal), summary_slots.PUT_OFF}

    assert decided | refused <= SENTENCES.keys()
    assert reasons.NEXT_STEPS.keys() <= SENTENCES.keys()
    assert {*get_args(compaction_plan.Trigger)} <= TRIGGERS.keys()
