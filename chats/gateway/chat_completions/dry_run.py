"""Dry runs: report the chat, the prompt and the left-out messages of a request.

The request is stored and its prompt composed in a transaction that is rolled back. No model is
called and no task is enqueued.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Sum

from chats.compaction import window
from chats.compaction.publish import publish_prepared
from chats.files.sent_excerpts import list_sent_excerpts
from chats.gateway import append_request
from chats.gateway.body import RequestFields
from chats.gateway.passthrough import forward
from chats.gateway.passthrough.rules import RequestRoute
from chats.gateway.request_files import is_file_ready
from chats.gateway.request_types import Placed, Sent
from chats.models import Branch, FileChunk, StoredFile, Turn
from chats.prompt import composition
from chats.prompt.built_prompt import Prompt
from chats.prompt.tail import TailRequired
from chats.record import history
from chats.turns import file_excerpts
from chats.turns.step_prompt import MOST_ATTEMPTS, is_summary_due
from contextpolicy.engine.messages.tokens import TokenCounter

OBJECT = "context.dry_run"
# The tail of a turn whose retrieved context is looked up only when it runs.
NOT_LOOKED_UP = "not_looked_up"


def build_dry_run_report(
    sent: Sent, *, asked: RequestFields, way: RequestRoute, counter: TokenCounter, now: datetime
) -> dict[str, Any]:
    """Return the dry-run report of a request.

    Raises the errors of `append_request.place_request`, and `PromptRefused`.
    """
    report = {
        "object": OBJECT,
        "model": way.choice.model.slug,
        "policy": way.choice.effective.label,
    }
    if way.why:
        return {
            **report,
            "decision": "off",
            "off": way.why,
            **measure_passthrough_request(sent, asked, way, counter),
        }
    with transaction.atomic():
        known = sent.chat.pk if sent.chat else None
        store_unsaved_documents(sent, now=now)
        placed = append_request.place_request(sent, counter=counter, now=now)
        found = build_placement_report(placed, counter=counter, now=now)
        if placed.decision != "new":
            known = placed.turn.branch.chat_id
        transaction.set_rollback(True)
    return {
        **report,
        "decision": placed.decision,
        "identity": sent.identity.source or "messages",
        "chat": str(known) if known else None,
        **found,
    }


def measure_passthrough_request(
    sent: Sent, asked: RequestFields, way: RequestRoute, counter: TokenCounter
) -> dict[str, Any]:
    """Return the size of a pass-through request, by the local tokenizer."""
    request = forward.build_passthrough_request(sent, asked=asked, model=way.choice.model)
    tokens = sum(counter.count(wire.content) for wire in request.messages)
    return {"prompt_tokens": tokens, "sent": [], "left_out": []}


def build_placement_report(
    placed: Placed, *, counter: TokenCounter, now: datetime
) -> dict[str, Any]:
    """Return the report on a placed request and its prompt.

    A repeated request has no prompt, because its reply is replayed.
    """
    if placed.decision == "repeat":
        return {"prompt_tokens": None, "sent": [], "left_out": [], "file_excerpts": []}
    turn = Turn.objects.select_related("branch__chat", "branch__parent", "trigger", "model").get(
        pk=placed.turn.pk
    )
    prompt = compose_dry_run_prompt(turn, counter=counter, now=now)
    fields = prompt.receipt_fields
    return {
        "prompt_tokens": prompt.prompt_tokens,
        "prompt_limit": prompt.prompt_limit,
        "sent": [
            {"part": origin, "seq": seq, "tokens": tokens, "cut_to": cut_to}
            for origin, _, seq, tokens, cut_to, *_ in fields["segments"]
        ],
        "left_out": [
            {**count_range_tokens(turn.branch, first=first, last=last), "reason": reason}
            for first, last, reason in fields["left_out"]
        ],
        "notes": [note for note in fields["notes"] if note != f"references:{NOT_LOOKED_UP}"],
        "file_excerpts": [
            {"name": each.name, "page": each.page, "part": each.part, "words": each.words}
            for each in list_sent_excerpts(turn)
        ],
        "compaction": fields["compaction_need"]["action"],
        "not_looked_up": list_deferred_context(prompt),
    }


def compose_dry_run_prompt(turn: Turn, *, counter: TokenCounter, now: datetime) -> Prompt:
    """Compose the prompt of a turn that will not run, with the same changes as its worker.

    Call it in the transaction that is rolled back: it moves the window, publishes a summary that is
    ready, and stores the excerpts of documents. Raises `PromptRefused`.
    """
    for _ in range(MOST_ATTEMPTS):
        prompt = composition.compose_prompt(turn=turn, counter=counter)
        if isinstance(prompt, TailRequired):
            turn.tail = (turn.tail or {}) | build_missing_tail(turn, due=prompt, counter=counter)
            continue
        if is_summary_due(prompt) and publish_prepared(branch_id=turn.branch_id, now=now):
            continue
        if isinstance(prompt, Prompt):
            return prompt
        window.move_window(branch_id=turn.branch_id, move=prompt, now=now)
    raise RuntimeError(f"the prompt does not fit after {MOST_ATTEMPTS} attempts")


def build_missing_tail(turn: Turn, *, due: TailRequired, counter: TokenCounter) -> dict[str, str]:
    """Return the missing parts of a turn's tail. Only excerpts of documents are looked up."""
    found: dict[str, str] = {}
    if due.state:
        found["state"] = ""
    if due.references:
        found["references"] = NOT_LOOKED_UP
    if due.files:
        chunks = file_excerpts.find_turn_excerpts(
            turn=turn, choice=due.choice, counter=counter, sent=due.sent
        )
        found["files"] = file_excerpts.create_excerpts(turn, chunks=chunks)
    return found


def store_unsaved_documents(sent: Sent, *, now: datetime) -> None:
    """Store the rows of a request's new documents, without their bytes.

    Replaces the rows of files that are not read yet or failed: the real request reads them again.
    Call it in the transaction that is rolled back.
    """
    for row, chunks in sent.conversation.unsaved:
        row.created_at = now
        stored = StoredFile.objects.filter(owner_id=row.owner_id, sha256=row.sha256).first()
        if stored is None:
            row.save(force_insert=True)
        elif is_file_ready(stored):
            # A worker has read it in the meantime.
            continue
        else:
            row.pk = stored.pk
            row.save(force_update=True)
            FileChunk.objects.filter(file=row).delete()
        for chunk in chunks:
            chunk.file = row
        FileChunk.objects.bulk_create(chunks)


def count_range_tokens(branch: Branch, *, first: int, last: int) -> dict[str, Any]:
    rows = history.select_path_messages(branch, after=first - 1, before=last + 1)
    tokens = rows.aggregate(tokens=Sum("token_count"))["tokens"]
    return {"from_seq": first, "to_seq": last, "tokens": tokens or 0}


def list_deferred_context(prompt: Prompt) -> Sequence[str]:
    """Return the kinds of retrieved context that are looked up only when the turn runs."""
    return [
        name
        for name, is_asked in (
            ("state", prompt.effective.values.get("strategy") == "entity_state"),
            ("references", prompt.effective.values.get("references")),
        )
        if is_asked
    ]
