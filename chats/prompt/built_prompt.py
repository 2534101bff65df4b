"""Turns a composed prompt into a request to a model, and into the content of its receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from chats.models import Branch, Compaction
from chats.prompt import model_choice
from chats.prompt.calibration import PromptEstimate
from chats.prompt.follow_ups import FollowUps, plan_follow_ups
from chats.prompt.prompt_facts import usable_compaction
from chats.prompt.prompt_scripts import measure_prompt_scripts
from chats.prompt.prompt_skills import build_skill_notes, list_prompt_skills
from chats.prompt.tools import registry as tools
from chats.prompt.tools.skill_load import SkillFacts
from chats.providers.base import ContextFacts, ProviderRequest
from chats.providers.registry import ProviderAccountValue as Account
from chats.providers.stored_options import get_learned_options
from chats.record import images, quotas, receipts
from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput, is_compressed
from contextpolicy.engine.compose.compaction_need import CompactionNeed, assess_compaction_need
from contextpolicy.engine.history.tool_rules import get_file_part_limit
from contextpolicy.engine.messages.transcript import Background, TextEntry
from contextpolicy.engine.policy.calibration import Factors
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import EffectivePolicy


@dataclass(frozen=True, slots=True)
class SentAboutPerson:
    """The texts in a prompt that an erasure in another chat deletes, and how they were loaded."""

    branch: Branch
    choice: model_choice.ChosenModel
    preferences: str
    recent: tuple[TextEntry, ...]

    @classmethod
    def of(
        cls, background: Background, *, branch: Branch, choice: model_choice.ChosenModel
    ) -> "SentAboutPerson | None":
        """Return the texts of a prompt. None if it has none."""
        if not (background.preferences or background.recent):
            return None
        return cls(branch, choice, background.preferences, background.recent)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A composed call: the request, and the content of its receipt.

    `texts`: (digest, origin, text) of the parts that are not messages.
    """

    request: ProviderRequest
    account: Account
    effective: EffectivePolicy
    compaction: Compaction | None
    prompt_limit: int
    prompt_tokens: int
    calibration: float
    factors: Factors
    # The time zone that the branch keeps from now on. Empty if it already has one, or has no dates.
    zone: str
    shares: Mapping[str, float]
    reserve: int
    texts: Sequence[tuple[str, str, str]]
    receipt_fields: Mapping[str, Any]
    compressed: Mapping[str, int | None]
    need: CompactionNeed
    follow_ups: FollowUps
    # The chat's search tool is offered in this and each later prompt of the branch.
    offers_search: bool = False
    # The tool that reads documents is offered in this and each later prompt of the chat.
    offers_files: bool = False
    # The texts about the owner in the prompt.
    about: SentAboutPerson | None = None
    # How the call counts towards the quotas of its policy. None: it has no quotas.
    meter: quotas.QuotaMeter | None = None
    # The skills that tool calls of the prompt can load.
    skills: SkillFacts = field(default_factory=SkillFacts)

    @property
    def estimate(self) -> PromptEstimate:
        """The size of the prompt, for the calibration of its model."""
        return PromptEstimate(tokens=self.prompt_tokens, factors=self.factors, shares=self.shares)

    @property
    def sent_seqs(self) -> frozenset[int]:
        """The `seq`s of the messages that are sent in full."""
        return frozenset(
            seq
            for origin, _, seq, _, cut_to, _, result_limit in self.receipt_fields["segments"]
            if seq and origin != "tail" and cut_to is None and result_limit is None
        )


def build_prompt(
    assembled: AssembledContext,
    *,
    given: ComposeInput,
    choice: model_choice.ChosenModel,
    branch: Branch,
    notes: Sequence[str] = (),
    zone: str = "",
) -> Prompt:
    """Build the request and receipt of an assembled context. `notes` are added to the receipt.

    `zone`: the time zone of the dates in the prompt. Empty: no dates.
    """
    values = choice.values
    account = model_choice.get_model_account(choice.model)
    chat_id = branch.chat_id
    refs = [
        receipts.derive_stored_digest(
            s.text_ref, origin=s.origin, label=s.message_id, chat_id=chat_id
        )
        for s in assembled.segments
    ]
    named = list(zip(assembled.segments, refs, strict=True))
    active = usable_compaction(branch.active_compaction, values=values)
    needed = assess_compaction_need(given, assembled)
    loaded = list_prompt_skills(assembled, given=given, active=active)
    return Prompt(
        request=ProviderRequest(
            model=choice.model.name,
            messages=assembled.messages,
            tools=assembled.tools,
            max_output_tokens=min(values.reserve_tokens, choice.model.max_output or 10**9),
            facts=build_context_facts(assembled, given=given, choice=choice),
            stream=not choice.model.cannot_stream,
            images=(
                images.load_prompt_images(assembled.messages, chat=branch.chat)
                if choice.model.takes_images
                else {}
            ),
            takes_images=choice.model.takes_images,
            cache_marks=assembled.cache_marks if values.cache_marks else (),
            thinking=choice.model.thinking,
            origin=model_choice.get_model_origin(choice.model),
            known=get_learned_options(choice.model),
        ),
        account=account,
        effective=choice.effective,
        compaction=active,
        prompt_limit=assembled.budget.prompt_limit,
        prompt_tokens=assembled.prompt_tokens,
        calibration=given.calibration,
        factors=choice.model.factors,
        # Layouts without day lines have dates too: in the summary and in excerpts.
        zone="" if branch.time_zone else zone,
        shares=measure_prompt_scripts(given),
        reserve=assembled.budget.reserve,
        texts=[(ref, s.origin, assembled.texts[s.text_ref]) for s, ref in named if ref],
        about=SentAboutPerson.of(given.background, branch=branch, choice=choice),
        receipt_fields={
            "segments": [
                [s.origin, s.message_id, s.seq, s.tokens, s.cut_to, ref, s.result_limit]
                for s, ref in named
            ],
            "left_out": [[out.from_seq, out.to_seq, out.reason] for out in assembled.left_out],
            "budget": asdict(assembled.budget),
            "prompt_tokens": assembled.prompt_tokens,
            "prompt_sha256": assembled.prompt_sha256,
            "last_seq": given.last_seq,
            "notes": [
                *assembled.adjusted,
                *assembled.notes,
                *given.notes,
                *notes,
                *build_skill_notes(loaded, counter=given.counter),
            ],
            "compaction_need": asdict(needed),
        },
        compressed=build_compression_event(assembled, values=values),
        need=needed,
        follow_ups=plan_follow_ups(
            assembled, given=given, choice=choice, account=account, needed=needed
        ),
        offers_search=tools.has_search(given.tools),
        offers_files=tools.has_file_read(given.tools),
        meter=quotas.build_quota_meter(
            owner_id=branch.chat.owner_id,
            values=values,
            prices=choice.model.prices,
            estimate=assembled.prompt_tokens,
        ),
        skills=SkillFacts(
            tuple(values.skills), frozenset(loaded), part_limit=get_file_part_limit(values)
        ),
    )


def build_compression_event(
    assembled: AssembledContext, *, values: PolicyValues
) -> dict[str, int | None]:
    """Return the data of `context.compressed`; empty if nothing was left out or cut."""
    if not is_compressed(assembled):
        return {}
    return {
        "original_count": assembled.original_count,
        "compressed_count": assembled.compressed_count,
        "truncated_count": assembled.truncated_count,
        "max_messages": values.window_size,
        "max_chars_per_message": values.max_chars_per_message,
    }


def build_context_facts(
    assembled: AssembledContext, *, given: ComposeInput, choice: model_choice.ChosenModel
) -> ContextFacts:
    """Return the numbers about a prompt that the demo model describes."""
    sent = {segment.seq for segment in assembled.segments if segment.seq}
    summary = given.summary
    return ContextFacts(
        messages_sent=len(sent),
        messages_total=given.last_seq,
        prompt_tokens=assembled.prompt_tokens,
        prompt_limit=assembled.budget.prompt_limit,
        summary_present=summary is not None,
        summary_range=(summary.from_seq, summary.to_seq) if summary else None,
        left_out=tuple((out.from_seq, out.to_seq, out.reason) for out in assembled.left_out),
        cut=sum(1 for segment in assembled.segments if segment.cut_to is not None),
        policy=choice.effective.label,
        strategy=choice.values.strategy,
        window=choice.values.window_size,
        has_state=bool(given.background.state),
    )
