"""Dry runs: report the chat, the prompt and the left-out messages of a request.

The request is stored and its prompt composed in a transaction that is rolled back. No model is
called and no task is enqueued.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Sum

from chats.gateway import append_request
from chats.gateway.body import RequestFields
from chats.gateway.passthrough import forward
from chats.gateway.passthrough.rules import RequestRoute
from chats.gateway.request_types import Placed, Sent
from chats.models import Branch, Turn
from chats.prompt import built_prompt, client, composition, model_choice, next_prompt, prompt_facts
from chats.prompt.built_prompt import Prompt
from chats.record import history
from contextpolicy.engine.compose.assembly import WindowNeeded
from contextpolicy.engine.messages.tokens import TokenCounter

OBJECT = "context.dry_run"


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
        placed = append_request.place_request(sent, counter=counter, now=now)
        found = build_placement_report(placed, counter=counter)
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


def build_placement_report(placed: Placed, *, counter: TokenCounter) -> dict[str, Any]:
    """Return the report on a placed request and its prompt.

    A repeated request has no prompt, because its reply is replayed.
    """
    if placed.decision == "repeat":
        return {"prompt_tokens": None, "sent": [], "left_out": []}
    turn = Turn.objects.select_related("branch__chat", "branch__parent", "trigger", "model").get(
        pk=placed.turn.pk
    )
    prompt = compose_dry_run_prompt(turn, counter=counter)
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
        "notes": fields["notes"],
        "compaction": fields["compaction_need"]["action"],
        "not_looked_up": list_deferred_context(prompt),
    }


def compose_dry_run_prompt(turn: Turn, *, counter: TokenCounter) -> Prompt:
    """Compose the prompt of a turn that will not run. Window moves are not stored.

    Raises `PromptRefused`.
    """
    choice = model_choice.choose_again(chat=turn.branch.chat, turn=turn)
    branch = prompt_facts.with_active_compaction(prompt_facts.read_branch(turn))
    asked = prompt_facts.load_turn_question(turn, branch=branch, choice=choice, counter=counter)
    while True:
        given = prompt_facts.load_prompt_facts(
            branch=branch,
            choice=choice,
            asked=asked,
            counter=counter,
            after=client.get_client_start(turn.client),
            is_client=turn.client is not None,
        )
        given = client.apply_client_input(given, client=turn.client)
        made = composition.ask_engine(given)
        if not isinstance(made, WindowNeeded):
            made = client.label_client_tools(made, client=turn.client)
            return built_prompt.build_prompt(made, given=given, choice=choice, branch=branch)
        branch = next_prompt.simulate_window_move(branch, to_seq=made.to_seq)


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
