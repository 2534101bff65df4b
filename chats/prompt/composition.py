"""Composes a prompt for a model under the effective policy.

The engine decides what the prompt contains. `prompt_facts` loads its input, and `built_prompt`
turns its result into a request and a receipt. Nothing is written.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from chats.files.excerpts import has_hidden_document
from chats.ground.refusals import Refusal
from chats.models import Branch, Turn
from chats.prompt import (
    agents,
    client,
    model_choice,
    person,
    tail,
    widening,
)
from chats.prompt.built_prompt import Prompt, build_prompt
from chats.prompt.prompt_facts import (
    build_background,
    get_prompt_zone,
    load_prompt_facts,
    load_turn_question,
    read_branch,
    with_active_compaction,
)
from chats.prompt.tools import registry as tools
from chats.prompt.turn_question import Question, get_question_time
from chats.record import history
from contextpolicy.engine.compose.assembly import (
    AssembledContext,
    ComposeInput,
    WindowNeeded,
    extract_shared_prefix,
)
from contextpolicy.engine.compose.assembly import compose_context as assemble
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.budget import (
    BudgetRefusal,
    QuestionTooLarge,
)
from contextpolicy.engine.team.team_view import compute_agent_window
from contextpolicy.ledger import count_chat_events
from contextpolicy.models import EffectivePolicy


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
    changed since. Raises the refusals of `model_choice.choose_chat_model`, `PromptRefused`,
    `QuestionErased` and `QuestionExcluded`.
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
    background = build_background(turn, choice=choice, known=known, zone=draft.zone)
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
    # Those of documents first: excerpts of the chat get only the room that is left.
    files = tail.request_file_excerpts(turn, choice=choice, given=given, context=assembled)
    excerpts = files or tail.request_excerpts(turn, choice=choice, given=given, context=assembled)
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
    follow_ups = replace(
        prompt.follow_ups, warm_up_from=None, saves_preferences=False, infers_preferences=False
    )
    return replace(
        prompt, request=request, follow_ups=follow_ups, offers_search=False, offers_files=False
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
    `TailRequired` instead if excerpts must be retrieved first. Raises `PromptRefused`,
    `QuestionErased` and `QuestionExcluded`.
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
            choice=choice,
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
    files = tail.request_file_excerpts(turn, choice=choice, given=given, context=assembled)
    excerpts = files or tail.request_agent_excerpts(
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
    follow_ups = replace(prompt.follow_ups, compact_from=None, warm_up_from=None)
    return replace(prompt, need=need_nothing, follow_ups=follow_ups)


def compose_prefix(
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
    prefix = extract_shared_prefix(assembled)
    if prefix is None:
        return None
    given = replace(given, last_seq=branch.last_seq)
    prompt = build_prompt(prefix, given=given, choice=choice, branch=branch, zone=zone)
    return replace(prompt, request=replace(prompt.request, max_output_tokens=1))


def ask_engine(given: ComposeInput) -> AssembledContext | WindowNeeded:
    """Return the prompt that the engine composes, or the window move that it requires.

    Raises `PromptRefused`.
    """
    try:
        return assemble(given)
    except BudgetRefusal as refusal:
        raise PromptRefused(refusal) from refusal


# Left-out messages with these reasons need no search: for example, a user excluded the message,
# or a state replaces it.
NOT_SEARCHED = frozenset(
    {"excluded", "incomplete", "empty", "turn_split", "state", "duplicate_of_current", "not_seen"}
)


def compose_with_search(
    given: ComposeInput, *, branch: Branch, choice: model_choice.ChosenModel
) -> tuple[ComposeInput, AssembledContext | WindowNeeded]:
    """Let the engine compose, adding the tools that read messages and documents it leaves out.

    If the tools do not fit, they are left out. Once a prompt has such a tool, `create_receipt`
    stores this, so that later prompts have it too. Raises `PromptRefused`.
    """
    assembled = ask_engine(given)
    if isinstance(assembled, WindowNeeded):
        return given, assembled
    offering = copy(branch)
    if not tools.has_search(given.tools):
        reasons = {out.reason for out in assembled.left_out}
        offering.search_offered = branch.search_offered or not reasons <= NOT_SEARCHED
    if hides_document(given, context=assembled, branch=branch):
        offering.chat = copy(branch.chat)
        offering.chat.has_cut_files = True
    if (offering.search_offered, offering.chat.has_cut_files) == (
        branch.search_offered,
        branch.chat.has_cut_files,
    ):
        return given, assembled
    # With fewer tools if they do not fit: the search is the one that more chats need.
    only_search = copy(offering)
    only_search.chat = branch.chat
    for offer in (offering, only_search):
        offered = tools.list_offered_tools(
            branch=offer,
            values=choice.values,
            model=choice.model,
            lists_skills=tools.has_skill_load(given.tools),
        )
        if offered == given.tools:
            break
        searching = replace(given, tools=offered)
        with suppress(PromptRefused):
            return searching, ask_engine(searching)
    return given, assembled


def hides_document(given: ComposeInput, *, context: AssembledContext, branch: Branch) -> bool:
    """Return True if a prompt is the first that leaves out or shortens a document."""
    if not branch.chat.has_documents or branch.chat.has_cut_files:
        return False
    sent = tail.find_whole_messages(context)
    if len(sent) >= given.last_seq:
        return False
    return has_hidden_document(branch, before=given.last_seq + 1, sent=sent)


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
