"""Composes a prompt for a model under the effective policy.

The engine decides what the prompt contains. This module loads the facts for it and
turns its result into a request and a receipt. It writes nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from chats.ground.refusals import Refusal
from chats.memory.preferences import preference_patterns
from chats.memory.search import references
from chats.models import Branch, Chat, ChatState, Compaction, Message, Turn
from chats.prompt import (
    agents,
    client,
    file_entries,
    model_choice,
    person,
    statements,
    tail,
    widening,
)
from chats.prompt.prompt_skills import build_skill_notes, list_prompt_skills, load_prompt_skills
from chats.prompt.tools import registry as tools
from chats.prompt.tools.skill_load import SkillFacts
from chats.providers.base import ContextFacts, ProviderRequest
from chats.providers.registry import ProviderAccountValue as Account
from chats.record import history, images, receipts, zones
from chats.record.provided import load_provided
from contextpolicy import plugins, skill_files
from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    CompactionNeed,
    ComposeInput,
    WindowNeeded,
    assess_compaction_need,
    compute_compaction_threshold,
    extract_shared_prefix,
    is_compressed,
)
from contextpolicy.engine.compose.assembly import compose_context as assemble
from contextpolicy.engine.compose.system_text import (
    SkillText,
    build_skill_parts,
    format_budget_note,
    format_runtime_note,
    order_system_parts,
)
from contextpolicy.engine.history.tool_rules import get_file_part_limit
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.messages.transcript import Background
from contextpolicy.engine.policy.budget import (
    BudgetRefusal,
    QuestionTooLarge,
    compute_compact_mark,
    compute_prompt_limit,
    convert_provider_tokens,
)
from contextpolicy.engine.policy.calibration import Factors
from contextpolicy.engine.policy.policy import PolicyValues, can_compact_messages
from contextpolicy.engine.strategies.entity_state import format_state_text
from contextpolicy.engine.team.team_view import compute_agent_window
from contextpolicy.engine.text import scripts
from contextpolicy.ledger import count_chat_events
from contextpolicy.models import EffectivePolicy, ModelSpec

CONTINUE_INSTRUCTION = (
    "Continue your last message exactly where it stopped. Do not repeat any of it."
)


class PromptRefused(Refusal):
    """The engine cannot build a prompt: the required parts exceed its limit.

    `code` and `sentence` come from the engine: `policy_impossible`, `message_too_large` or
    `turn_too_large`.
    """

    status = 409
    sentence = "{reason}"

    def __init__(self, refusal: BudgetRefusal) -> None:
        super().__init__(reason=str(refusal))
        self.code = refusal.code
        self.is_question_too_large = isinstance(refusal, QuestionTooLarge)


@dataclass(frozen=True, slots=True)
class WindowMoveRequired:
    """The window must move before a prompt fits. `compaction.window.move` stores the move."""

    needed: WindowNeeded
    effective: EffectivePolicy


@dataclass(frozen=True, slots=True)
class Prompt:
    """A composed call: the request, and the content of its receipt.

    `texts`: (digest, origin, text) of the parts that are not messages. `fold_from` and `warm_from`:
    the reply lengths in tokens at which a compaction or a cache warm-up becomes due; None: never.
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
    fold_from: int | None
    warm_from: int | None
    light_model: str
    strategy: str
    # The answered messages may contain preferences to save.
    tells: bool = False
    # A model may suggest preferences once the chat is idle.
    infers: bool = False
    # The chat's search tool is offered in this and each later prompt of the branch.
    offers_search: bool = False
    # The skills that tool calls of the prompt can load.
    skills: SkillFacts = field(default_factory=SkillFacts)

    @property
    def sent_seqs(self) -> frozenset[int]:
        """The `seq`s of the messages that are sent in full."""
        return frozenset(
            seq
            for origin, _, seq, _, cut_to, _, result_limit in self.receipt_fields["segments"]
            if seq and origin != "tail" and cut_to is None and result_limit is None
        )


def compose_prompt(
    *,
    turn: Turn,
    counter: TokenCounter,
    window_limit: int | None = None,
    branch: Branch | None = None,
    draft: tail.PromptDraft | None = None,
) -> Prompt | WindowMoveRequired | tail.TailRequired:
    """Compose the prompt of the turn's next call.

    Returns `TailRequired` or `WindowMoveRequired` instead if the turn's tail must be built or the
    window moved first. `window_limit` is the smaller window learned from an overflow error,
    `branch` the turn's branch if just loaded. The facts of a `draft` are used if the chat has not
    changed since. Raises the refusals of `model_choice.choose_chat_model`, and `PromptRefused`.
    """
    chat = turn.branch.chat
    choice = model_choice.choose_again(chat=chat, turn=turn)
    due = tail.find_missing_tail(turn, choice=choice)
    if due is not None:
        return due
    if draft is not None and draft.is_current(choice=choice):
        return complete_draft(draft, turn=turn)
    events = count_chat_events(chat.pk) if tail.may_need_excerpts(turn, choice=choice) else 0
    branch = with_active_compaction(branch or read_branch(turn))
    if turn.agent_id is not None:
        return compose_for_agent(
            turn=turn, branch=branch, choice=choice, counter=counter, window_limit=window_limit
        )
    # A client's messages are sent unchanged.
    zone = get_prompt_zone(branch, values=choice.values) if turn.client is None else ""
    asked = load_turn_question(turn, branch=branch, choice=choice, counter=counter, zone=zone)
    given = load_prompt_facts(
        branch=branch,
        choice=choice,
        asked=asked,
        counter=counter,
        window_limit=window_limit,
        after=client.get_client_start(turn.client),
        is_client=turn.client is not None,
    )
    given = client.apply_client_input(given, client=turn.client)
    if turn.client is None and window_limit is None:
        needed = find_wider_window(branch, choice=choice, asked=asked, counter=counter)
        if needed is not None:
            return WindowMoveRequired(needed=needed, effective=choice.effective)
    draft = tail.PromptDraft(choice, given, branch, zone, events)
    return assemble_draft(draft, turn=turn, notes=asked.notes)


def complete_draft(
    draft: tail.PromptDraft, *, turn: Turn
) -> Prompt | WindowMoveRequired | tail.TailRequired:
    """Compose a prompt from the facts in its draft and the current background."""
    choice, until = draft.choice, get_question_time(turn)
    known = person.load_person_context(draft.branch, choice=choice, until=until)
    background = build_background(turn, values=choice.values, known=known, zone=draft.zone)
    given = replace(draft.given, background=background)
    return assemble_draft(replace(draft, given=given), turn=turn, notes=known.notes)


def assemble_draft(
    draft: tail.PromptDraft, *, turn: Turn, notes: Sequence[str]
) -> Prompt | WindowMoveRequired | tail.TailRequired:
    """Let the engine compose a prompt from its facts. `notes` are added to the receipt."""
    choice, given, branch = draft.choice, draft.given, draft.branch
    if turn.client is None:
        given, assembled = compose_with_search(given, branch=branch, choice=choice)
    else:
        assembled = ask_engine(given)
    if isinstance(assembled, WindowNeeded):
        return WindowMoveRequired(needed=assembled, effective=choice.effective)
    excerpts = tail.request_excerpts(turn, choice=choice, given=given, context=assembled)
    if excerpts is not None:
        return replace(excerpts, draft=draft)
    notes = (*tail.list_tail_notes(turn, choice=choice), *notes)
    assembled = client.label_client_tools(assembled, client=turn.client)
    prompt = build_prompt(
        assembled, given=given, choice=choice, branch=branch, notes=notes, zone=draft.zone
    )
    return prompt if turn.client is None else adapt_prompt_for_client(prompt, asked=turn.client)


def adapt_prompt_for_client(prompt: Prompt, *, asked: Mapping[str, Any]) -> Prompt:
    """Return the prompt of a client's turn with the client's parameters.

    The cache is not warmed up, because the client sends the next prompt's prefix itself.
    Preferences are not saved, because the writer behind a client is unknown.
    """
    request = client.apply_client_parameters(prompt.request, client=asked)
    return replace(
        prompt, request=request, warm_from=None, tells=False, infers=False, offers_search=False
    )


# The maximum number of attempts with a smaller window. Each leaves out at least one more message.
MOST_MOVES = 20


def compose_for_agent(
    *,
    turn: Turn,
    branch: Branch,
    choice: model_choice.ChosenModel,
    counter: TokenCounter,
    window_limit: int | None,
) -> Prompt | tail.TailRequired:
    """Compose the prompt of an agent's turn from the agent's view of the chat.

    If the prompt does not fit, the window shrinks for this agent only; nothing is stored. Returns
    `TailRequired` instead if excerpts must be retrieved first. Raises `PromptRefused`.
    """
    view = agents.load_agent_view(turn)
    if view is None:
        raise ValueError(f"turn {turn.pk} has no agent")
    zone = get_prompt_zone(branch, values=choice.values)
    seen = agents.load_seen_messages(view, turn=turn, branch=branch, counter=counter, zone=zone)
    known = person.load_person_context(branch, choice=choice, until=get_question_time(turn))
    asked = Question(
        question=(seen.question,) if seen.question else (),
        before=seen.before,
        last_seq=branch.last_seq,
        steps=seen.steps,
        continues=str(turn.continues.reply_id) if turn.continues else "",
        background=build_background(
            turn,
            values=choice.values,
            known=known,
            zone=zone,
            shown=lambda row: view.words(
                history.build_engine_message(row, counter=counter), counter=counter
            ),
        ),
        notes=known.notes,
        zone=zone,
    )
    plain = load_prompt_facts(
        branch=branch,
        choice=choice,
        asked=asked,
        counter=counter,
        window_limit=window_limit,
        after=compute_agent_window(seen.before, size=view.window_size),
    )
    given = agents.apply_agent_view(plain, view=view, seen=seen, counter=counter)
    if seen.question is None and turn.continues is None:
        given = replace(given, instruction=agents.YOUR_TURN)
    for _ in range(MOST_MOVES):
        given, assembled = compose_with_search(given, branch=branch, choice=choice)
        if isinstance(assembled, AssembledContext):
            break
        given = replace(given, window_to=assembled.to_seq)
    else:
        raise RuntimeError("an agent's prompt does not fit after the most window moves")
    excerpts = tail.request_agent_excerpts(
        turn, choice=choice, given=given, context=assembled, seen=seen
    )
    if excerpts is not None:
        return excerpts
    opening = seen.opening.seq if seen.opening else 0
    is_beside = any(s.origin == "pin" and s.seq == opening for s in assembled.segments)
    prompt = build_prompt(
        assembled,
        # Whether a summary is due is decided for the whole chat at the end of the round.
        given=given,
        choice=choice,
        branch=branch,
        notes=(
            *tail.list_tail_notes(turn, choice=choice),
            *asked.notes,
            *([agents.ROUND_OPENING] if is_beside else []),
            *([f"{agents.PROMPT_FORM}:{view.form}"] if view.form else []),
        ),
        zone=zone,
    )
    need_nothing = replace(prompt.need, action="none", reason="strategy", mark=0)
    return replace(prompt, need=need_nothing, fold_from=None, warm_from=None)


def compose_lead(
    *,
    branch: Branch,
    choice: model_choice.ChosenModel,
    counter: TokenCounter,
    expected: engine.Message | None = None,
) -> Prompt | WindowMoveRequired | None:
    """Compose the prefix of a branch's next prompt, independent of the question.

    `branch` must be loaded with its chat and active compaction. Room is reserved for the
    `expected` question. Returns None if the next prompt shares no whole message with the
    current history. Returns `WindowMoveRequired` if the window must be moved first. Raises
    `PromptRefused` and `ModelUnavailable`.
    """
    seq = branch.last_seq + 1
    # An empty part counts the tokens that a message takes. A question without parts would count
    # none.
    empty = (engine.TextPart(""),)
    question = engine.Message(id="", seq=seq, role="user", parts=empty, tokens=0)
    if expected is not None:
        question = replace(expected, id="", seq=seq)
    zone = get_prompt_zone(branch, values=choice.values)
    asked = Question(question=(question,), before=seq, last_seq=seq, zone=zone)
    given = load_prompt_facts(branch=branch, choice=choice, asked=asked, counter=counter)
    given, assembled = compose_with_search(given, branch=branch, choice=choice)
    if isinstance(assembled, WindowNeeded):
        return WindowMoveRequired(needed=assembled, effective=choice.effective)
    lead = extract_shared_prefix(assembled)
    if lead is None:
        return None
    given = replace(given, last_seq=branch.last_seq)
    prompt = build_prompt(lead, given=given, choice=choice, branch=branch, zone=zone)
    return replace(prompt, request=replace(prompt.request, max_output_tokens=1))


def ask_engine(given: ComposeInput) -> AssembledContext | WindowNeeded:
    """Return the prompt that the engine composes, or the window move that it requires.

    Raises `PromptRefused`.
    """
    try:
        return assemble(given)
    except BudgetRefusal as refusal:
        raise PromptRefused(refusal) from refusal


# Reasons that make no search necessary: a person excluded the message, or a state replaces it.
NOT_SEARCHED = frozenset(
    {"excluded", "incomplete", "empty", "turn_split", "state", "duplicate_of_current", "not_seen"}
)


def compose_with_search(
    given: ComposeInput, *, branch: Branch, choice: model_choice.ChosenModel
) -> tuple[ComposeInput, AssembledContext | WindowNeeded]:
    """Let the engine compose, adding the chat's search tool if the prompt leaves out messages.

    If the tool does not fit, it is left out. Once a prompt has the tool, `create_receipt` stores
    this in the branch, so that later prompts have it too. Raises `PromptRefused`.
    """
    assembled = ask_engine(given)
    if (
        isinstance(assembled, WindowNeeded)
        or tools.has_search(given.tools)
        or branch.search_offered
    ):
        return given, assembled
    if all(out.reason in NOT_SEARCHED for out in assembled.left_out):
        return given, assembled
    offering = copy(branch)
    offering.search_offered = True
    offered = tools.list_offered_tools(
        branch=offering,
        values=choice.values,
        model=choice.model,
        lists_skills=tools.has_skill_load(given.tools),
    )
    if offered == given.tools:
        return given, assembled
    searching = replace(given, tools=offered)
    try:
        return searching, ask_engine(searching)
    except PromptRefused:
        return given, assembled


def read_branch(turn: Turn) -> Branch:
    """Reload the turn's branch, to see changes by other transactions."""
    branch = statements.BRANCH.first(branch=turn.branch_id)
    if branch is None:
        raise Branch.DoesNotExist
    branch.chat = turn.branch.chat
    return branch


def with_active_compaction(branch: Branch) -> Branch:
    """Return the branch with its active compaction loaded.

    The compaction is loaded separately: most chats have none, and joining its seventy
    columns costs more than the rest of the query.
    """
    if branch.active_compaction_id is not None:
        active = statements.COMPACTION.first(compaction=branch.active_compaction_id)
        if active is None:
            raise Compaction.DoesNotExist
        branch.active_compaction = active
    return branch


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a prompt and its context.

    Has either `question` or, for a continued reply, `continues` (the reply's id). History ends
    before the `seq` `before`, and the branch ends at `last_seq`.
    """

    question: tuple[engine.Message, ...]
    before: int
    last_seq: int
    steps: tuple[engine.Message, ...] = ()
    continues: str = ""
    background: Background = field(default_factory=Background)
    # The reasons why background was withheld, for the receipt.
    notes: tuple[str, ...] = ()
    # The time zone for message dates. Empty: no dates.
    zone: str = ""


def get_prompt_zone(branch: Branch, *, values: PolicyValues) -> str:
    """Return the time zone of the dates in a branch's prompts; empty if they have no dates.

    Prompts with plain sections have no dates, because their text is exactly that of the document.
    """
    return zones.get_branch_zone(branch) if values.dates and not values.plain_sections else ""


def load_turn_question(
    turn: Turn,
    *,
    branch: Branch,
    choice: model_choice.ChosenModel,
    counter: TokenCounter,
    zone: str = "",
) -> Question:
    """Return the question of a turn's next call. Message dates use `zone`."""
    question, steps = load_turn_messages(turn, branch=branch)
    known = person.load_person_context(branch, choice=choice, until=get_question_time(turn))
    first = (*question, *steps)
    return Question(
        question=history.load_all(question, counter=counter, zone=zone),
        before=(first[0].seq or 1) if first else branch.last_seq + 1,
        last_seq=branch.last_seq,
        steps=history.load_all(steps, counter=counter, zone=zone),
        continues=str(turn.continues.reply_id) if turn.continues else "",
        background=build_background(turn, values=choice.values, known=known, zone=zone),
        notes=known.notes,
        zone=zone,
    )


def load_prompt_facts(
    *,
    branch: Branch,
    choice: model_choice.ChosenModel,
    asked: Question,
    counter: TokenCounter,
    window_limit: int | None = None,
    after: int = 0,
    is_client: bool = False,
) -> ComposeInput:
    """Load all facts for a prompt. Messages up to the `seq` `after` are not sent.

    `is_client`: a client of /v1 brings its own tools, so skills on demand are left out. The number
    of queries does not grow with the chat.
    """
    active = usable_compaction(branch.active_compaction, values=choice.values)
    summary, window_to = summary_and_window(active, counter=counter)
    if branch.client_windowed:
        summary = None
    window_to = max(window_to, after)
    covered = max(summary.to_seq if summary else 0, window_to)
    known = [size for size in (choice.model.window, window_limit) if size]
    model_window = min(known) if known else None
    limit = compute_prompt_limit(choice.values, model_window=model_window)
    provided = load_provided(
        branch,
        after=covered,
        before=asked.before,
        values=choice.values,
        counter=counter,
        tokens=max(convert_provider_tokens(limit, calibration=choice.model.factors.lowest), 1),
        most=choice.values.window_size if choice.values.strategy == "simple" else None,
        zone=asked.zone,
        keep=asked.continues,
    )
    loaded = provided.loaded
    ends = [end for _, end in (*provided.skipped, *([loaded.unloaded] if loaded.unloaded else []))]
    pins, exceptions = load_pins_and_exceptions(
        branch,
        summary=summary,
        hidden_to=max(covered, *ends) if ends else covered,
        window_to=window_to,
        counter=counter,
        zone=asked.zone,
    )
    known_skills, skill_notes = load_prompt_skills(branch, choice=choice, is_client=is_client)
    lists_skills = choice.model.supports_tools and any(
        skill.on_demand or skill.files for skill in known_skills
    )
    given = ComposeInput(
        values=choice.values,
        model_window=model_window,
        counter=counter,
        system=collect_system_texts(
            branch.chat,
            choice=choice,
            known=known_skills,
            moved=(active.skills or ()) if active else (),
        ),
        tools=tools.list_offered_tools(
            branch=branch,
            values=choice.values,
            model=choice.model,
            lists_skills=lists_skills,
        ),
        summary=summary,
        window_to=window_to,
        history=(*exceptions, *mark_continued_reply(asked.continues, loaded.messages)),
        pins=pins,
        unloaded=loaded.unloaded,
        skipped=provided.skipped,
        notes=(*provided.notes, *skill_notes),
        question=asked.question,
        steps=asked.steps,
        instruction="" if asked.question else CONTINUE_INSTRUCTION,
        background=asked.background,
        last_seq=asked.last_seq,
        strict_roles=choice.model.strict_roles,
        strategy=plugins.find_strategy(choice.values.strategy),
    )
    return replace(given, calibration=choice.model.factors.of(measure_prompt_scripts(given)))


def find_wider_window(
    branch: Branch, *, choice: model_choice.ChosenModel, asked: Question, counter: TokenCounter
) -> WindowNeeded | None:
    """Return the window move that restores history under a policy with more room.

    None if the move gains nothing, or if the prompt without a window is refused.
    """
    if not widening.can_widen_window(branch, choice=choice):
        return None
    whole = widening.copy_without_window(branch)
    try:
        found = ask_engine(
            load_prompt_facts(branch=whole, choice=choice, asked=asked, counter=counter)
        )
    except PromptRefused:
        return None
    move = found if isinstance(found, WindowNeeded) else None
    return widening.find_wider(move, branch=branch)


def measure_prompt_scripts(given: ComposeInput) -> dict[str, float]:
    texts = [text for _, text in given.system]
    texts += [given.summary.text] if given.summary else []
    told = iter_prompt_texts((*given.history, *given.question, *given.steps))
    return scripts.compute_script_shares((*texts, *told))


def iter_prompt_texts(messages: Iterable[engine.Message]) -> Iterator[str]:
    """Yield the texts of messages, including tool results."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, engine.TextPart):
                yield part.text
            elif isinstance(part, engine.ToolResultPart):
                yield part.content
            elif isinstance(part, engine.FilePart):
                yield part.text


# Number of newest messages that determine a chat's script when no prompt is composed.
NEWEST = 20


def get_calibration_factor(branch: Branch, *, model: ModelSpec) -> float:
    """Return a model's calibration factor for the scripts of a chat's newest messages."""
    if not model.calibration_by_script:
        return model.calibration
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by(
        "-seq"
    )
    parts = (part for row in rows[:NEWEST] for part in engine.parse_parts(row.parts))
    texts = (part.text for part in parts if isinstance(part, engine.TextPart))
    return model.factors.of(scripts.compute_script_shares(texts))


def get_base_system_texts(chat: Chat, *, values: PolicyValues) -> tuple[tuple[str, str], ...]:
    """Return the policy's and the chat's system text as (origin, text), without empty ones."""
    parts = (("policy", values.system_text), ("chat", chat.system_text))
    return tuple((origin, text) for origin, text in parts if text)


def collect_system_texts(
    chat: Chat,
    *,
    choice: model_choice.ChosenModel,
    known: Sequence[SkillText] = (),
    moved: Sequence[str] = (),
) -> tuple[tuple[str, str], ...]:
    """Return all parts of the system text as (origin, text), in the order of the policy.

    `known`: the skills of the prompt. `moved`: those whose loaded texts a compaction moved here,
    and the keys of parts of their files.
    """
    values = choice.values
    more = build_skill_parts(
        known,
        moved=moved,
        lists=choice.model.supports_tools,
        files=skill_files.load_moved_texts(moved, known=known),
    )
    if values.runtime_note:
        more.append(("runtime", format_runtime_note(choice.model.name)))
    if values.budget_note:
        more.append(("budget", format_budget_note(values)))
    parts = get_base_system_texts(chat, values=values)
    return order_system_parts((*parts, *more)) if more else parts


def usable_compaction(active: Compaction | None, *, values: PolicyValues) -> Compaction | None:
    """Return the active compaction if the policy uses it in prompts, else None.

    An unused compaction stays active for other policies.
    """
    return active if can_compact_messages(values) else None


def build_background(
    turn: Turn,
    *,
    values: PolicyValues,
    known: person.AboutPerson,
    zone: str = "",
    shown: Callable[[Message], str] | None = None,
) -> Background:
    """Return the background of a turn's prompts, the same in every step.

    `shown`: function that returns a message's text as an agent sees it. None: unchanged.
    """
    state_id = (turn.tail or {}).get("state")
    row = ChatState.objects.get(pk=state_id) if state_id else None
    has_inline_day = references.has_inline_days(values)
    return Background(
        preferences=known.preferences,
        profile=known.profile,
        state=format_state_text(row.values) if row else "",
        references=(
            *file_entries.build_file_entries(turn, is_plain=values.plain_sections, zone=zone),
            *(
                references.build_reference_entries(
                    turn.pk,
                    owner_id=turn.branch.chat.owner_id,
                    is_plain=values.plain_sections,
                    has_inline_day=has_inline_day,
                    zone=zone,
                    shown=shown,
                )
                if values.references and (turn.tail or {}).get("references") == ""
                else ()
            ),
        ),
        recent=known.recent,
        date=f"{get_question_time(turn):%Y-%m-%d}" if values.show_date else "",
    )


def get_question_time(turn: Turn) -> datetime:
    """Return the time at which the turn's question was asked. Requeueing does not change it."""
    return turn.trigger.created_at if turn.trigger else turn.queued_at


def summary_and_window(
    active: Compaction | None, *, counter: TokenCounter
) -> tuple[engine.Summary | None, int]:
    """Return the published summary, and the `seq` up to which a window leaves out messages.

    The `seq` is 0 if there is no window.
    """
    if active is None:
        return None, 0
    row = active.base if active.kind == Compaction.Kind.WINDOW else active
    window_to = active.to_seq if active.kind == Compaction.Kind.WINDOW else 0
    if row is None:
        return None, window_to
    summary = engine.Summary(
        id=str(row.pk),
        text=row.text,
        from_seq=row.from_seq,
        to_seq=row.to_seq,
        exceptions=tuple(row.exceptions),
        tokens=counter.count(row.text),
    )
    return summary, window_to


def load_pins_and_exceptions(
    branch: Branch,
    *,
    summary: engine.Summary | None,
    hidden_to: int,
    counter: TokenCounter,
    window_to: int = 0,
    zone: str = "",
) -> tuple[tuple[engine.Message, ...], tuple[engine.Message, ...]]:
    """Return the pinned messages up to `hidden_to`, and the exceptions of the summary's range.

    A hidden message is sent as a pin, whether a summary covers it, a window excludes it, or it was
    not loaded. Exceptions that a window leaves out are skipped.
    """
    pins: tuple[engine.Message, ...] = ()
    if hidden_to:
        pinned = history.load_pinned(branch, before=hidden_to + 1)
        pins = history.load_all(pinned, counter=counter, zone=zone)
    if summary is None or not summary.exceptions:
        return pins, ()
    rows = history.select_path_messages(
        branch, after=summary.from_seq - 1, before=summary.to_seq + 1
    )
    found = rows.filter(seq__in=summary.exceptions, seq__gt=window_to, pinned_at=None)
    return pins, history.load_all(found.order_by("seq"), counter=counter, zone=zone)


def mark_continued_reply(
    reply_id: str, messages: tuple[engine.Message, ...]
) -> tuple[engine.Message, ...]:
    """Return the history of a continuation, in which the truncated reply counts as complete."""
    return tuple(
        replace(message, incomplete=False) if message.id == reply_id else message
        for message in messages
    )


def load_turn_messages(turn: Turn, *, branch: Branch) -> tuple[list[Message], list[Message]]:
    """Return the question of a turn, and the messages after it: its steps and later messages.

    The question is the newest user message before the turn's first step. Earlier ones are history.
    A continuation has no question, only an instruction.
    """
    # Filtered by turn only and sorted here. With a branch filter, SQLite would scan the whole
    # branch.
    own = sorted(statements.OWN_MESSAGES.rows(turn=turn.pk), key=lambda row: row.seq or 0)
    first_step = next((row.seq for row in own if row.role == Message.Role.ASSISTANT), None)
    asked = [
        row
        for row in own
        if row.role == Message.Role.USER and (first_step is None or (row.seq or 0) < first_step)
    ]
    if not asked and turn.trigger is not None:
        asked = [turn.trigger]
    if not asked:
        return [], own
    question = asked[-1]
    if question.seq == branch.last_seq:
        return [question], []
    rows = history.select_path_messages(branch, after=question.seq or 0, before=branch.last_seq + 1)
    return [question], list(rows.order_by("seq"))


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
            cache_marks=assembled.cache_marks if values.cache_marks else (),
            thinking=choice.model.thinking,
            origin=model_choice.get_model_origin(choice.model),
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
        fold_from=compute_compaction_threshold(
            needed, values=values, limit=assembled.budget.prompt_limit
        ),
        warm_from=find_warm_up_start(needed, choice=choice, account=account, assembled=assembled),
        light_model=values.summarization_model,
        strategy=values.strategy,
        tells=values.preferences and has_preference_statement(given),
        infers=is_inference_enabled(values),
        offers_search=tools.has_search(given.tools),
        skills=SkillFacts(
            tuple(values.skills), frozenset(loaded), part_limit=get_file_part_limit(values)
        ),
    )


def is_inference_enabled(values: PolicyValues) -> bool:
    """Return True if a policy allows inferred preferences and names a summary model."""
    allowed = values.preferences and values.inferred_preferences
    return allowed and bool(values.summarization_model)


def has_preference_statement(given: ComposeInput) -> bool:
    """Return True if a message being answered states or withdraws a preference."""
    asked = (m for m in (*given.question, *given.steps) if m.role == "user")
    texts = [engine.extract_message_text(message) for message in asked]
    return any(
        preference_patterns.extract_statements(text)
        or preference_patterns.extract_forget_requests(text)
        for text in texts
    )


def can_warm_up_cache(choice: model_choice.ChosenModel, *, account: Account) -> bool:
    """Return True if policy and server allow cache warm-ups and the model's calls are free."""
    return choice.values.warm_up and account.warms_up and not model_choice.has_price(choice.model)


def find_warm_up_start(
    needed: CompactionNeed,
    *,
    choice: model_choice.ChosenModel,
    account: Account,
    assembled: AssembledContext,
) -> int | None:
    """Return the reply length in tokens from which the next prompt's prefix changes, or None.

    Assumes that the next question is as long as this one.
    """
    if not can_warm_up_cache(choice, account=account) or not can_compact_messages(choice.values):
        return None
    if choice.values.window_turns or choice.values.window_size or choice.values.window_tokens:
        # Any reply may reach the limit.
        return 0
    limit = assembled.budget.prompt_limit
    next_question = round(assembled.budget.question * assembled.budget.calibration)
    mark = compute_compact_mark(choice.values, prompt_limit=limit)
    return max(mark - needed.tokens - next_question, 0)


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
