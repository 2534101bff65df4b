"""Finds the step at which a required message was lost on its way into the prompt."""

from collections.abc import Sequence
from dataclasses import dataclass

from chats.memory.search import references
from chats.memory.search.follow_up import build_search_question
from chats.memory.search.recall import FoundExcerpt, recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.models import Branch, Message, SearchText, Turn
from chats.prompt.built_prompt import Prompt
from chats.record.history import select_path_messages
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.resolution import load_policy_values
from replay.evidence.chats import MeasuredChat

# The steps are in the order in which a message passes them.
STEPS = ("covered", "not indexed", "search late", "floor", "rank", "share of the budget", "cut")
# Maximum number of results of the repeated search.
MOST_FOUND = 1_000


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The search results of a question, best first, and the seqs of the chosen excerpts."""

    found_excerpts: Sequence[FoundExcerpt]
    excerpts: frozenset[int]
    note: str
    values: PolicyValues


def repeat_search(measured: MeasuredChat, *, turn: Turn, prompt: Prompt) -> LookedUp:
    """Repeat a turn's search with up to `MOST_FOUND` results.

    Raises ValueError if the turn has no question.
    """
    values = load_policy_values(prompt.effective)
    question = turn.trigger
    if question is None:
        raise ValueError(f"turn {turn.pk} has no question")
    branch = Branch.objects.select_related("chat").get(pk=turn.branch_id)
    recalled = recall_excerpts(
        branch.chat.owner_id,
        build_search_question(question.text, seq=question.seq, branch=branch),
        scope=Scope("chat", branch.chat_id),
        limit=MOST_FOUND,
        at=question.created_at,
    )
    rows = references.load_turn_references(turn.pk, owner_id=branch.chat.owner_id)
    tail = Turn.objects.values_list("tail", flat=True).get(pk=turn.pk) or {}
    return LookedUp(
        found_excerpts=[one for one in recalled.excerpts if one.message_id],
        excerpts=frozenset(row.message.seq or 0 for row in rows),
        note=tail.get("references", ""),
        values=values,
    )


def find_lost_step(seq: int, *, measured: MeasuredChat, prompt: Prompt, found: LookedUp) -> str:
    """Return the step at which the message with a seq was lost, one of `STEPS`.

    `covered`: the policy has no retrieved context, and the message is not sent in full.
    `cut`: the message is sent, but without the words that the answer needs.
    """
    sent = {segment[2] for segment in prompt.receipt_fields["segments"] if segment[0] != "tail"}
    has_excerpts = found.values.references and found.values.reference_share
    # With excerpts, the search may add the missing part of a shortened message.
    if seq in found.excerpts or seq in (prompt.sent_seqs if has_excerpts else sent):
        return "cut"
    if not has_excerpts:
        return "covered"
    branch = Branch.objects.get(chat=measured.chat, parent=None)
    row = select_path_messages(branch, after=seq - 1, before=seq + 1).first()
    if row is None or not is_indexed(row):
        return "not indexed"
    if found.note == "late":
        return "search late"
    ranks = {one.seq: rank for rank, one in enumerate(found.found_excerpts)}
    rank = ranks.get(seq)
    if rank is None or found.found_excerpts[rank].strength < found.values.reference_floor:
        return "floor"
    is_full = len(found.excerpts) >= found.values.reference_count
    return "rank" if is_full else "share of the budget"


def is_indexed(message: Message) -> bool:
    """Return True if the search index contains a message."""
    return SearchText.objects.filter(message=message).exists()
