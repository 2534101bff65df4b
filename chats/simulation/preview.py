"""Compares the next prompt of a chat under the current policy and under a proposed one.

Both prompts are composed with the worker's own functions, and are exact as long as the state token
does not change. Nothing is written and no model is called.
"""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import unified_diff
from itertools import islice
from typing import cast

from django.contrib.auth.models import User
from django.utils.translation import gettext, ngettext

from chats.ground.refusals import Refusal
from chats.models import Branch, Chat
from chats.prompt import statements
from chats.prompt.next_prompt import Outlook, compose_next_prompt, get_segment_disposition
from chats.prompt.tokenizer import O200kCounter
from chats.record import history
from chats.simulation.estimates import Estimate, estimate_turns
from chats.simulation.forecast import Point, Size, forecast_prompts
from chats.simulation.proposals import (
    REMOVED,
    PolicyProposal,
    choose_under,
    resolve_assigned_policies,
)
from contextpolicy.engine.compose.compaction_need import assess_compaction_need
from contextpolicy.engine.messages.messages import WireMessage

# Maximum number of diff lines; the page says if there are more.
MOST_LINES = 400
# Maximum characters of both prompts together. Longer ones are not compared line by line.
MOST_CHARACTERS = 600_000


@dataclass(frozen=True, slots=True)
class Side:
    """The next prompt under one policy, or the reason why it is refused.

    `tokens` and `limit` are in the provider's tokens. `left_out` counts messages by reason. `due`
    is the next compaction step (`none`, `prepare` or `swap`) and its reason.
    """

    label: str
    code: str = ""
    sentence: str = ""
    tokens: int = 0
    limit: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    # The tokens of skills, which are part of those of the system text.
    skills: int = 0
    full: int = 0
    cut: int = 0
    summarised: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    due: tuple[str, str] = ("none", "")
    window_to: int = 0
    outlook: Outlook | None = None
    # SHA-256 of the prompt. Two prompts of the same size can have different texts.
    digest: str = ""

    @property
    def outcome(self) -> tuple[object, ...]:
        """The values that must be equal for two sides to count as the same."""
        left_out = sorted(self.left_out.items())
        sizes = (self.tokens, self.full, self.cut, self.summarised, left_out)
        return (self.code, self.digest, *sizes, self.due[0])


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview for one chat: two prompts, a forecast for each, and their state token."""

    chat: Chat
    last_seq: int
    now: Side
    proposed: Side
    token: str
    course_now: Sequence[Point] = ()
    course_proposed: Sequence[Point] = ()
    estimate_now: Estimate | None = None
    estimate_proposed: Estimate | None = None


def preview_proposal(
    chat: Chat,
    *,
    proposal: PolicyProposal,
    now: datetime,
    branch: Branch | None = None,
    question: str = "",
) -> Preview:
    """Compose the next prompt of a chat under both policies. A refusal is returned as a side.

    Without a `branch`, uses the active one. Without a `question`, uses an empty one.
    """
    branch = branch or load_previewed_branch(chat)
    branch.chat = chat
    sides = [
        compose_side(branch, proposal=each, now=now, question=question) for each in (None, proposal)
    ]
    sizes = list_message_sizes(branch)
    courses = [forecast_side(side, sizes) for side in sides]
    likely = [estimate_turns(side.outlook, sizes) if side.outlook else None for side in sides]
    token = compute_state_token(branch, proposal=proposal)
    return Preview(
        chat, branch.last_seq, sides[0], sides[1], token, courses[0], courses[1], *likely
    )


def compose_chat_sides(
    chats: Sequence[Chat], *, proposal: PolicyProposal, now: datetime
) -> list[tuple[Chat, Side, Side]]:
    """Compose the next prompts of several chats under both policies, without forecasts."""
    return [(chat, *compose_both_sides(chat, proposal=proposal, now=now)) for chat in chats]


def compose_both_sides(chat: Chat, *, proposal: PolicyProposal, now: datetime) -> tuple[Side, Side]:
    """Compose the next prompt of a chat under the current policy and under a proposed one."""
    branch = load_previewed_branch(chat)
    branch.chat = chat
    today = compose_side(branch, proposal=None, now=now)
    if today.outlook is not None and is_untouched(today.outlook, chat=chat, proposal=proposal):
        return today, replace(today, label=format_proposal_label(proposal))
    return today, compose_side(branch, proposal=proposal, now=now)


def is_untouched(today: Outlook, *, chat: Chat, proposal: PolicyProposal) -> bool:
    """Return True if the proposal changes neither the chat's model nor its values."""
    try:
        choice = choose_under(chat, proposal=proposal)
    except Refusal:
        return False
    return choice.model == today.choice.model and choice.values == today.choice.values


def format_proposal_label(proposal: PolicyProposal) -> str:
    said = (
        gettext("Without {policy}") if proposal.level == REMOVED else gettext("{policy} (edited)")
    )
    return said.format(policy=proposal.name)


def find_previewable_chat(chat_id: uuid.UUID) -> Chat | None:
    """Return a chat that a preview supports.

    None if it does not exist, was deleted, has no active branch, or has a team.
    """
    rows = Chat.objects.filter(pk=chat_id, deleted_at=None, active_branch__isnull=False, team=None)
    return rows.select_related("model", "owner").first()


def load_previewed_branch(chat: Chat) -> Branch:
    """Return the active branch of a chat with its active compaction loaded."""
    rows = Branch.objects.select_related("active_compaction__base", "parent")
    return rows.get(pk=cast(uuid.UUID, chat.active_branch_id))


def build_empty_chat(owner: User, *, now: datetime) -> tuple[Chat, Branch]:
    """Return an unsaved, empty chat for a user, and its unsaved branch."""
    chat = Chat(owner=owner, created_at=now, updated_at=now)
    branch = Branch(chat=chat, created_at=now, last_seq=0)
    return chat, branch


def compose_side(
    branch: Branch, *, proposal: PolicyProposal | None, now: datetime, question: str = ""
) -> Side:
    """Compose the next prompt of a branch under one policy. A refusal is returned, not raised."""
    label = format_proposal_label(proposal) if proposal else gettext("Now")
    try:
        choice = choose_under(branch.chat, proposal=proposal)
        if proposal is None:
            label = gettext("Now: {policy}").format(policy=choice.effective.label)
        outlook = compose_next_prompt(
            branch, choice=choice, counter=O200kCounter(), now=now, question=question
        )
    except Refusal as refusal:
        return Side(label, code=refusal.code, sentence=refusal.localized)
    return build_side(outlook, label=label)


def build_side(outlook: Outlook, *, label: str) -> Side:
    """Return the sizes of a composed prompt for one side of a preview."""
    sent, given = outlook.sent, outlook.given
    fates = Counter(get_segment_disposition(segment).sent for segment in outlook.segments.values())
    left: Counter[str] = Counter()
    for out in sent.left_out:
        left[out.reason] += out.to_seq - out.from_seq + 1
    needed = assess_compaction_need(given, sent)
    return Side(
        label,
        tokens=int(sent.prompt_tokens * given.calibration),
        limit=sent.budget.prompt_limit,
        parts=outlook.tokens,
        skills=outlook.skill_tokens,
        full=fates["full"],
        cut=fates["cut"],
        summarised=left.pop("covered", 0),
        left_out=dict(left),
        due=(needed.action, needed.reason),
        window_to=given.window_to,
        outlook=outlook,
        digest=sent.prompt_sha256,
    )


def list_message_sizes(branch: Branch) -> list[Size]:
    """Return the sizes of the branch's messages, oldest first, without their text."""
    if branch.last_seq == 0:
        return []
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by("seq")
    found = rows.filter(excluded=False).values_list("role", "token_count")
    return [Size(role == "user", tokens or 0) for role, tokens in found]


def forecast_side(side: Side, sizes: Sequence[Size]) -> list[Point]:
    """Estimate the prompts of all turns so far under the policy of one side.

    Empty if that side is refused.
    """
    if side.outlook is None:
        return []
    choice = side.outlook.choice
    return list(forecast_prompts(sizes, values=choice.values, model_window=choice.model.window))


def compute_state_token(branch: Branch, *, proposal: PolicyProposal) -> str:
    """Return a token that shows whether the prompts of a preview may have changed.

    It contains the chat, a hash and the newest seq. The hash covers the branch with its newest
    message and compaction, the assigned versions, and the model with its window and calibration
    factors, but not the submitted form.
    """
    chat = branch.chat
    model = chat.model or statements.DEFAULT_MODEL.first()
    said = [
        str(branch.pk),
        branch.last_seq,
        branch.context_revision,
        str(branch.active_compaction_id),
        [each[:4] for each in resolve_assigned_policies(chat, proposal=None)],
        [model.slug, model.window, model.calibration, model.calibration_by_script] if model else [],
        proposal.version,
    ]
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
    return f"{chat.pk}.{digest}.{branch.last_seq}"


def describe_chat_change(before: str, after: str) -> str:
    """Describe the change of a chat between two state tokens. Empty if nothing has changed.

    Also empty for tokens of different chats.
    """
    if before == after or before.partition(".")[0] != after.partition(".")[0]:
        return ""
    then, now = (parse_last_seq(token) for token in (before, after))
    if now > then:
        count = now - then
        return ngettext(
            "{n:,} message since the last preview.",
            "{n:,} messages since the last preview.",
            count,
        ).format(n=count)
    return gettext("The chat’s prompt or its policies changed since the last preview.")


def parse_last_seq(token: str) -> int:
    """Return the sequence number of the newest message in a state token; 0 if it has none."""
    said = token.rpartition(".")[2][:9]
    return int(said) if said.isdecimal() else 0


def diff_prompts(found: Preview) -> tuple[list[str], bool]:
    """Return the diff lines of both exact prompts, and whether the diff was truncated.

    If the prompts together have more than `MOST_CHARACTERS`, returns no lines and True.
    """
    sides = (found.now.outlook, found.proposed.outlook)
    before, after = (format_prompt_lines(side.sent.messages) if side else [] for side in sides)
    if sum(map(len, (*before, *after))) > MOST_CHARACTERS:
        return [], True
    lines = unified_diff(before, after, "now", "proposed", lineterm="", n=1)
    shown = list(islice(lines, MOST_LINES + 1))
    return shown[:MOST_LINES], len(shown) > MOST_LINES


def format_prompt_lines(messages: Sequence[WireMessage]) -> list[str]:
    """Return messages as lines, each below a line with its role."""
    return [
        line
        for message in messages
        for line in (f"[{message.role}]", *(message.content or "").splitlines())
    ]
