"""Model calls that update a chat's state or title instead of writing a reply.

Each call has its own receipt. Receipts refer to messages by id and never copy their text, so that
erasing a message removes its text completely.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from chats.models import Branch, Chat, PromptText, Receipt, Turn
from chats.prompt import prompt_facts
from chats.providers.base import ProviderRequest, StateTask
from chats.providers.stored_options import get_learned_options
from chats.record import quotas, receipts
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.segments import compute_text_ref, format_prompt_json
from contextpolicy.engine.policy.budget import Budget, compute_prompt_limit, convert_provider_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import EffectivePolicy, ModelSpec
from speed import prepared


@dataclass(frozen=True, slots=True)
class SidePrompt:
    """A composed call, with the parts of its receipt.

    `texts` are (origin, name, text, tokens) tuples. `read` are the messages that the model reads,
    with their tokens. If a message is longer than `cut_to` characters, the model reads only its
    beginning; None means that no message is cut. `replied`: an earlier reply that the model reads
    as context, its tokens, and the number of characters at its end that it reads (None: all).
    """

    request: ProviderRequest
    texts: Sequence[tuple[str, str, str, int]]
    read: Sequence[tuple[engine.Message, int]]
    budget: Budget
    tokens: int
    cut_to: int | None = None
    replied: tuple[engine.Message, int, int | None] | None = None

    @property
    def to_seq(self) -> int:
        """The `seq` of the newest message read."""
        return self.read[-1][0].seq


@dataclass(frozen=True, slots=True)
class SideLimits:
    """The limits of a model call that is not a reply.

    `reserve` and `prompt_limit` are in the provider's tokens; `tokens` is the prompt limit in local
    tokens.
    """

    model: ModelSpec
    reserve: int
    prompt_limit: int
    calibration: float
    tokens: int

    def build_budget(self, **parts: int) -> Budget:
        """Return the budget of a prompt with these parts, in local tokens."""
        return Budget(
            token_budget=self.prompt_limit + self.reserve,
            reserve=self.reserve,
            prompt_limit=self.prompt_limit,
            calibration=self.calibration,
            limit=self.tokens,
            **parts,
        )

    def build_request(
        self,
        messages: Sequence[engine.WireMessage],
        *,
        most: int,
        state: StateTask | None = None,
    ) -> ProviderRequest:
        """Return the request for a reply of at most `most` tokens."""
        return ProviderRequest(
            model=self.model.name,
            messages=tuple(messages),
            max_output_tokens=most,
            state=state,
            stream=not self.model.cannot_stream,
            known=get_learned_options(self.model),
        )


def load_side_limits(
    branch: Branch, *, values: PolicyValues, model: ModelSpec, most: int | None = None
) -> SideLimits:
    """Return the limits of a call to the model; its prompt has at most `most` provider tokens."""
    limit = compute_prompt_limit(values, model_window=model.window)
    limit = limit if most is None else min(limit, most)
    factor = prompt_facts.get_calibration_factor(branch, model=model)
    tokens = convert_provider_tokens(max(limit, 1), calibration=factor)
    return SideLimits(model, values.reserve_tokens, limit, factor, tokens)


def build_side_meter(
    prompt: SidePrompt, *, chat: Chat, values: PolicyValues, model: ModelSpec
) -> quotas.QuotaMeter | None:
    """Return the meter that counts a call towards its user's quotas; None without quotas."""
    return quotas.build_quota_meter(
        owner_id=chat.owner_id, values=values, prices=model.prices, estimate=prompt.tokens
    )


def create_side_receipt(
    prompt: SidePrompt,
    *,
    turn: Turn,
    step: int,
    effective: EffectivePolicy,
    now: datetime,
    call: int = Receipt.BESIDE,
) -> Receipt:
    """Write the receipt before the call, in the caller's transaction, or return the existing one.

    `call` is the call's number within the step, 0 by default.
    """
    place = {"turn": turn, "attempt": turn.attempt, "step": step, "call": call}
    if known := Receipt.objects.filter(**place).first():
        return known
    chat_id = turn.branch.chat_id
    refs = [
        receipts.derive_stored_digest(
            compute_text_ref(text), origin=origin, label=name, chat_id=chat_id
        )
        for origin, name, text, _ in prompt.texts
    ]
    named = list(zip(refs, prompt.texts, strict=True))
    rows = [PromptText(digest=ref, origin=o, text=text) for ref, (o, _, text, _) in named]
    PromptText.objects.bulk_create(rows, ignore_conflicts=True)
    segments: list[list[Any]] = [
        [origin, name, 0, tokens, None, ref, None] for ref, (origin, name, _, tokens) in named
    ]
    context = [prompt.replied] if prompt.replied else []
    segments += [["history", m.id, m.seq, tokens, cut, "", None] for m, tokens, cut in context]
    segments += [
        ["question", m.id, m.seq, tokens, cut_of(m, prompt.cut_to), "", None]
        for m, tokens in prompt.read
    ]
    read = [*(m for m, *_ in context), *(m for m, _ in prompt.read)]
    receipt = Receipt(
        **place,
        effective_policy=effective,
        model_name=prompt.request.model,
        segments=segments,
        left_out=list_unread_ranges(sorted(m.seq for m in read)),
        budget=asdict(prompt.budget),
        prompt_tokens=prompt.tokens,
        prompt_sha256=compute_text_ref(format_prompt_json(prompt.request.messages, ())),
        last_seq=prompt.to_seq,
        created_at=now,
    )
    prepared.insert_row(receipts.seal_receipt(receipt))
    return receipt


def cut_of(message: engine.Message, cut_to: int | None) -> int | None:
    """Return the number of characters that the model read of a cut message.

    None if the message was not cut.
    """
    is_cut = cut_to is not None and len(engine.extract_message_text(message)) > cut_to
    return cut_to if is_cut else None


def list_unread_ranges(seqs: Sequence[int]) -> list[list[Any]]:
    """Return the ranges of seqs before and between the messages read.

    The previous state covers these messages.
    """
    ends = [0, *seqs]
    return [
        [before + 1, after - 1, "state"]
        for before, after in zip(ends, seqs, strict=False)
        if before + 1 < after
    ]
