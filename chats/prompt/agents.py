"""The prompt of an agent's turn: the agent's view of its team's chat.

The turn determines the agent's window and the last visible message. The system text contains the
agent's instruction, the team and the task. `engine.team.team_view` decides how each message
appears, so that prompt, receipt and preview agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chats.models import Agent, Branch, Chat, Message, Turn
from chats.prompt import statements, turn_question
from chats.record import history
from contextpolicy.engine.compose.agent_layouts import is_text_form
from contextpolicy.engine.compose.assembly import ComposeInput
from contextpolicy.engine.compose.partition import explain_unsendable_message
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.team.team import Speaker
from contextpolicy.engine.team.team_view import (
    Viewer,
    build_team_instructions,
    compute_agent_window,
    rewrite_for_text_prompt,
    rewrite_for_viewer,
)

# Number of newest messages that are searched for an agent's question.
NEWEST = 50
YOUR_TURN = (
    "It is your turn again, and nobody has said anything since. Add what is new, or reply only"
    " with [NEXT:]."
)
# Notes in receipts.
ROUND_OPENING = "round_opening"
PROMPT_FORM = "prompt_form"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """An agent's view of its team's chat: its identity, and the system texts added for it."""

    viewer: Viewer
    owner: str
    system: tuple[tuple[str, str], ...]
    window_size: int
    # The text form of its prompt. Empty: each message keeps its role.
    form: str = ""
    # The team's byte limit. None: no limit.
    max_bytes: int | None = None

    def speaker(self, message: engine.Message) -> Speaker:
        """Return the speaker of a message.

        For messages without a role id, this is the owner or the assistant.
        """
        is_human = message.role == "user"
        if message.role_id:
            return Speaker(message.role_id, message.speaker, "human" if is_human else "ai")
        if is_human:
            return Speaker("user", self.owner, "human")
        return Speaker("assistant", "Assistant", "ai")

    def seen(self, message: engine.Message, *, counter: TokenCounter) -> engine.Message:
        """Return a message as the agent sees it.

        Its own replies are assistant messages. Messages of others are user messages with names.
        """
        speaker = self.speaker(message)
        show = rewrite_for_text_prompt if self.form else rewrite_for_viewer
        return show(message, speaker=speaker, viewer=self.viewer, counter=counter)

    def words(self, message: engine.Message, *, counter: TokenCounter) -> str:
        """Return the text of a message as the agent sees it, without the speaker's name."""
        speaker = self.speaker(message)
        shown = rewrite_for_text_prompt(
            message, speaker=speaker, viewer=self.viewer, counter=counter
        )
        return engine.extract_message_text(shown)


def build_agent_view(agent: Agent, *, chat: Chat, team: Sequence[Agent]) -> AgentView:
    mates = tuple(member.name for member in team if member.pk != agent.pk and not member.rests)
    humans = {member.name for member in team if member.type == Agent.Type.HUMAN}
    viewer = Viewer(role_id=agent.role_id, name=agent.name, mates=mates)
    is_text = is_text_form(agent.prompt_form)
    task = chat.team_task or ""
    own = (
        ("agent", agent.instruction),
        ("agent", agent.instruction_file_text),
        (
            "team" if is_text else "agent",
            build_team_instructions(viewer, humans=humans, is_text=is_text),
        ),
        ("task", task if is_text or not task else f"The team's task:\n{task}"),
    )
    return AgentView(
        viewer=viewer,
        owner=chat.owner.get_username(),
        system=tuple(part for part in own if part[1]),
        window_size=agent.window_size,
        form=agent.prompt_form if is_text else "",
        max_bytes=agent.version.max_bytes or None,
    )


def load_agent_view(turn: Turn) -> AgentView | None:
    """Return the view of a turn's agent. None if the chat's own model replies."""
    if turn.agent_id is None:
        return None
    agent = Agent.objects.select_related("version").get(pk=turn.agent_id)
    team = list(Agent.objects.filter(version=agent.version_id))
    return build_agent_view(agent, chat=turn.branch.chat, team=team)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The question of an agent's prompt and the messages after it, as the agent sees them.

    `question` is None if the agent itself spoke last; an instruction then replaces it. `before`:
    the `seq` before which history ends. `steps`: the messages after the question. `opening`: the
    message that opened the round, if it is sent. `duplicate`: the `seq` of a message that the
    newest one repeats; 0 if it repeats none.
    """

    question: engine.Message | None
    before: int
    steps: tuple[engine.Message, ...]
    opening: engine.Message | None
    duplicate: int


def load_seen_messages(
    view: AgentView, *, turn: Turn, branch: Branch, counter: TokenCounter, zone: str = ""
) -> Seen:
    """Return the question of an agent's turn, the messages after it, and the round's opening.

    The question is the newest message up to the turn's border that may be sent, unless the agent
    wrote it or continues a reply. Replies of other agents after the border are hidden. Raises
    `QuestionErased` and `QuestionExcluded` if the turn answers a person whose messages may not be
    sent.
    """
    border = branch.last_seq if turn.seen_to is None else min(turn.seen_to, branch.last_seq)
    shown, sendable, duplicate = load_newest_seen(
        view, branch=branch, border=border, counter=counter, zone=zone
    )
    # A continued reply has no question.
    is_asked = bool(sendable) and sendable[-1].role == "user" and turn.continues_id is None
    question = sendable[-1] if is_asked else None
    before = question.seq if question else border + 1
    behind = [message for message in shown if message.seq > before]
    own = list(statements.OWN_MESSAGES.rows(turn=turn.pk))
    if turn.trigger is not None and turn_question.answers_person(turn):
        turn_question.choose_question(
            [turn.trigger, *(row for row in own if row.role == Message.Role.USER)]
        )
    others = list(history.select_path_messages(branch, after=border, before=branch.last_seq + 1))
    # An independent agent that tries again sees the tools that it called before.
    own += [row for row in others if is_interrupted_attempt(row, viewer=view.viewer)]
    steps = [row for row in own if (row.seq or 0) > border]
    mine = {row.pk for row in steps}
    unseen = [row for row in others if row.pk not in mine]
    loaded = history.load_all(unseen, counter=counter, zone=zone)
    told = [replace(message, left="not_seen") for message in loaded]
    loaded = history.load_all(steps, counter=counter, zone=zone)
    told += [view.seen(step, counter=counter) for step in loaded]
    told.sort(key=lambda message: message.seq)
    return Seen(
        question=question,
        before=before,
        steps=(*behind, *told),
        opening=load_round_opening(view, turn=turn, before=before, counter=counter),
        duplicate=duplicate,
    )


def load_newest_seen(
    view: AgentView, *, branch: Branch, border: int, counter: TokenCounter, zone: str = ""
) -> tuple[list[engine.Message], list[engine.Message], int]:
    """Return the newest messages up to a border as the agent sees them, ascending.

    Also returns the two newest of them that may be sent, and the `seq` of a message that the newest
    one repeats, or 0. Only an agent's message counts as a repetition. Messages are read backwards,
    no further than needed.
    """
    rows = history.select_path_messages(branch, after=max(0, border - NEWEST), before=border + 1)
    shown: list[engine.Message] = []
    sendable: list[engine.Message] = []
    is_agents = False
    for row in rows.order_by("-seq").iterator(chunk_size=4):
        message = view.seen(
            history.build_engine_message(row, counter=counter, zone=zone), counter=counter
        )
        shown.append(message)
        if not sendable and is_interrupted_attempt(row, viewer=view.viewer):
            # Follows the question like a step.
            continue
        if not explain_unsendable_message(message):
            is_agents = row.role == Message.Role.ASSISTANT if not sendable else is_agents
            sendable.append(message)
        if len(sendable) == 2:
            break
    duplicate = 0
    if is_agents and len(sendable) == 2:
        newest, last = sendable
        same = newest.role_id == last.role_id and newest.parts == last.parts
        duplicate = last.seq if same else 0
    return shown[::-1], sendable[::-1], duplicate


def is_interrupted_attempt(row: Message, *, viewer: Viewer) -> bool:
    """Return True if a message is the viewer's own interrupted reply, with tool results."""
    if row.finish != Message.Finish.INCOMPLETE or not row.kept:
        return False
    is_own = (row.speaker or {}).get("roleId") == viewer.role_id
    return is_own and any(part["type"] == "tool_result" for part in row.parts)


def load_round_opening(
    view: AgentView, *, turn: Turn, before: int, counter: TokenCounter
) -> engine.Message | None:
    """Return the message that opened the round.

    None if the turn has no round, the message may not be sent, or it is not older than the
    question.
    """
    opening: Message | None = turn.round.opening if turn.round else None
    if opening is None or opening.seq is None or opening.seq >= before:
        return None
    message = view.seen(history.build_engine_message(opening, counter=counter), counter=counter)
    return None if explain_unsendable_message(message) else message


def apply_agent_view(
    given: ComposeInput, *, view: AgentView, seen: Seen, counter: TokenCounter
) -> ComposeInput:
    """Return the prompt's input as the agent sees it, with its window, system texts and limits."""
    window_to = max(given.window_to, compute_agent_window(seen.before, size=view.window_size))
    pins = {message.seq: view.seen(message, counter=counter) for message in given.pins}
    if seen.opening is not None and seen.opening.seq <= window_to:
        pins[seen.opening.seq] = seen.opening
    shown = (view.seen(message, counter=counter) for message in given.history)
    limits = [size for size in (given.values.max_bytes, view.max_bytes) if size]
    policy = [part for part in given.system if part[0] == "policy"]
    rest = [part for part in given.system if part[0] != "policy"]
    return replace(
        given,
        # The limit of a team applies to texts. That of a policy also applies to the whole request,
        # as `image_limit`.
        values=replace(given.values, max_bytes=min(limits, default=None)),
        form=view.form,
        system=(*policy, *view.system, *rest),
        window_to=window_to,
        history=tuple(
            replace(message, left="duplicate_of_current")
            if message.seq == seen.duplicate
            else message
            for message in shown
        ),
        pins=tuple(pins[seq] for seq in sorted(pins)),
        strict_roles=True,
    )
