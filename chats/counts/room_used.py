"""Measures how much of the prompt limit is used by prompts that leave messages out."""

from dataclasses import dataclass

from django.utils.translation import ngettext

from chats.counts.telling import list_receipt_ids
from chats.models import Receipt
from contextpolicy.engine.strategies.entity_state import EntityState
from contextpolicy.models import AuditEvent, ContextPolicy
from contextpolicy.resolution import load_policy_values

# Maximum number of measured prompts, the newest ones, and of replies that are searched for them.
MOST_PROMPTS, MOST_REPLIES = 50, 1_000
# A warning needs this many prompts, and an average share of the limit below this share.
FEWEST, LOW_SHARE = 10, 0.7


@dataclass(frozen=True, slots=True)
class RoomUsed:
    """The number of prompts that left messages out, and their average share of the limit."""

    prompts: int
    share: float

    @property
    def warning(self) -> str:
        """A warning for policy administrators if the limit is used too little, otherwise empty."""
        if self.prompts < FEWEST or self.share >= LOW_SHARE:
            return ""
        said = ngettext(
            "The last {n} prompt that left messages out used {share} of its limit on average. Turn "
            "on retrieved context, raise its share, or raise the compaction target.",
            "The last {n} prompts that left messages out used {share} of their limit on average. "
            "Turn on retrieved context, raise its share, or raise the compaction target.",
            self.prompts,
        )
        return said.format(n=self.prompts, share=f"{self.share:.0%}")


def measure_room_used(policy: ContextPolicy) -> RoomUsed:
    """Measure the newest 50 prompts of the active version, among the newest 1,000 replies.

    A prompt counts if its reply was completed, if this version set its limit, and if it left out
    messages that were neither excluded nor empty. Prompts of the state strategy do not count: the
    state replaces the dialogue, so they are small by design.
    """
    if policy.current is None:
        return RoomUsed(0, 0.0)
    events = AuditEvent.objects.filter(type="turn.completed").order_by("-id")[:MOST_REPLIES]
    calls = [pk for event in events for pk in list_receipt_ids(event)]
    shares: list[float] = []
    for start in range(0, len(calls), MOST_PROMPTS):
        found = Receipt.objects.select_related("effective_policy").in_bulk(
            calls[start : start + MOST_PROMPTS]
        )
        rows = sorted(found.values(), key=lambda row: row.created_at, reverse=True)
        shares += [calculate_limit_share(row) for row in rows if is_counted(row, policy=policy)]
        if len(shares) >= MOST_PROMPTS:
            break
    counted = shares[:MOST_PROMPTS]
    return RoomUsed(len(counted), sum(counted) / len(counted) if counted else 0.0)


def is_counted(receipt: Receipt, *, policy: ContextPolicy) -> bool:
    """Return True if a prompt counts for a policy, as described at `measure_room_used`."""
    if receipt.purpose != "reply" or not receipt.budget.get("limit"):
        return False
    number = policy.current.number if policy.current else 0
    sources = receipt.effective_policy.sources
    # The policy that set the limit is responsible for how much of it is used.
    source = sources.get("token_budget") or sources.get("strategy")
    if not source or list(source[1:3]) != [policy.slug, number]:
        return False
    if load_policy_values(receipt.effective_policy).strategy == EntityState.name:
        return False
    return any(reason not in ("excluded", "empty") for _, _, reason in receipt.left_out)


def calculate_limit_share(receipt: Receipt) -> float:
    """Return the share of the prompt limit that a prompt used."""
    return float(receipt.prompt_tokens / receipt.budget["limit"])
