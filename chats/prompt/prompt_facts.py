"""Loads the facts from which the engine composes a prompt: messages, summary, background."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from chats.memory.search import references
from chats.models import Branch, Chat, ChatState, Compaction, Message, Turn
from chats.prompt import (
    file_entries,
    model_choice,
    person,
    statements,
)
from chats.prompt.file_check import check_prompt_files
from chats.prompt.prompt_scripts import measure_prompt_scripts
from chats.prompt.prompt_skills import load_prompt_skills
from chats.prompt.tools import registry as tools
from chats.prompt.turn_question import (
    Question,
    QuestionErased,
    QuestionExcluded,
    get_question_time,
    load_turn_messages,
)
from chats.record import history, zones
from chats.record.provided import load_provided
from contextpolicy import plugins, skill_files
from contextpolicy.engine.compose.assembly import ComposeInput
from contextpolicy.engine.compose.system_text import (
    SkillText,
    build_skill_parts,
    format_budget_note,
    format_runtime_note,
    order_system_parts,
)
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.messages.transcript import Background
from contextpolicy.engine.policy.budget import (
    compute_prompt_limit,
    convert_provider_tokens,
)
from contextpolicy.engine.policy.policy import PolicyValues, can_compact_messages
from contextpolicy.engine.strategies.entity_state import format_state_text
from contextpolicy.engine.text import scripts
from contextpolicy.models import ModelSpec

CONTINUE_INSTRUCTION = (
    "Continue your last message exactly where it stopped. Do not repeat any of it."
)


def read_branch(turn: Turn) -> Branch:
    """Reload the turn's branch, to see changes by other transactions.

    Raises `Branch.DoesNotExist`.
    """
    branch = statements.BRANCH.first(branch=turn.branch_id)
    if branch is None:
        raise Branch.DoesNotExist
    branch.chat = turn.branch.chat
    return branch


def with_active_compaction(branch: Branch) -> Branch:
    """Return the branch with its active compaction loaded.

    The compaction is loaded separately: most chats have none, and joining its seventy
    columns costs more than the rest of the query. Raises `Compaction.DoesNotExist`.
    """
    if branch.active_compaction_id is not None:
        active = statements.COMPACTION.first(compaction=branch.active_compaction_id)
        if active is None:
            raise Compaction.DoesNotExist
        branch.active_compaction = active
    return branch


def get_prompt_zone(branch: Branch, *, values: PolicyValues) -> str:
    """Return the time zone of the dates in a branch's prompts; empty if the prompts have no dates.

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
    """Return the question of a turn's next call. Message dates use `zone`.

    Raises `QuestionErased` and `QuestionExcluded`.
    """
    question, steps = load_turn_messages(turn, branch=branch)
    known = person.load_person_context(branch, choice=choice, until=get_question_time(turn))
    first = (*question, *steps)
    return Question(
        question=history.load_all(question, counter=counter, zone=zone),
        before=(first[0].seq or 1) if first else branch.last_seq + 1,
        last_seq=branch.last_seq,
        steps=history.load_all(steps, counter=counter, zone=zone),
        continues=str(turn.continues.reply_id) if turn.continues else "",
        background=build_background(turn, choice=choice, known=known, zone=zone),
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
    """Load all facts for a prompt. Messages up to the `seq` `after` are sent only if pinned.

    `is_client`: a client of /v1 brings its own tools, so skills on demand are left out. The number
    of queries does not grow with the chat. Raises `FilesNotAllowedForModel`, and the refusals of
    `mark_continued_reply`.
    """
    newest = (*asked.question, *asked.steps)
    check_prompt_files(branch, choice=choice, newest=newest, before=asked.before)
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
        history=(*exceptions, *mark_continued_reply(asked, loaded.messages)),
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
        # Other models get a line for each image.
        image_limit=choice.values.max_bytes if choice.model.takes_images else None,
        strategy=plugins.find_strategy(choice.values.strategy),
    )
    return replace(given, calibration=choice.model.factors.of(measure_prompt_scripts(given)))


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
    choice: model_choice.ChosenModel,
    known: person.AboutPerson,
    zone: str = "",
    shown: Callable[[Message], str] | None = None,
) -> Background:
    """Return the background of a turn's prompts, the same in every step.

    `shown`: function that returns a message's text as an agent sees it. None: unchanged.
    """
    values = choice.values
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
                if may_send_references(turn, choice=choice)
                else ()
            ),
        ),
        recent=known.recent,
        date=format_question_date(turn.branch, values=values, at=get_question_time(turn)),
    )


def may_send_references(turn: Turn, *, choice: model_choice.ChosenModel) -> bool:
    """Return True if the turn has stored references that its policy still allows in prompts.

    References to other chats are checked again in each step, because a turn can wait for days.
    """
    values = choice.values
    if not values.references or (turn.tail or {}).get("references") != "":
        return False
    if values.reference_share:
        return True
    return not person.find_withhold_reason(turn.branch.chat, choice=choice)


def format_question_date(branch: Branch, *, values: PolicyValues, at: datetime) -> str:
    """Return the day of a question in the zone of the branch. Empty if the policy omits it."""
    if not values.show_date:
        return ""
    return zones.format_local_day(zones.get_branch_zone(branch), at)


def summary_and_window(
    active: Compaction | None, *, counter: TokenCounter
) -> tuple[engine.Summary | None, int]:
    """Return the published summary, and the `seq` up to which a window leaves out messages.

    The summary is None if there is none. The `seq` is 0 if there is no window.
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
    asked: Question, messages: tuple[engine.Message, ...]
) -> tuple[engine.Message, ...]:
    """Return the history of a continuation, in which the truncated reply counts as complete.

    Raises `QuestionErased` and `QuestionExcluded` if prompts may not contain the reply.
    """
    for message in messages:
        # A turn that also answers a newer message goes on without the reply.
        if message.id == asked.continues and not asked.question:
            if message.excluded:
                raise QuestionExcluded
            if not message.parts:
                raise QuestionErased
    return tuple(
        replace(message, incomplete=False) if message.id == asked.continues else message
        for message in messages
    )
