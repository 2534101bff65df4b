"""The prompt for the model that extracts a chat's state."""

from chats.models import Branch, ChatState, Message, Turn
from chats.prompt import turn_question
from chats.providers.base import StateTask
from chats.record import history
from chats.record.sendable import build_sendable_filter
from chats.turns import side_calls
from chats.turns.side_calls import SidePrompt
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter, count_wire_tokens
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.strategies.entity_state import (
    LONGEST_REPLY,
    STATE_V2,
    build_state_request,
    format_request_schema,
    format_state_text,
)
from contextpolicy.models import ModelSpec

# The maximum number of user messages that one extraction reads. There is more than one after a
# failure, or if messages arrived during a reply.
MOST_MESSAGES = 20
# The tokens of the words around the quoted reply, at most.
REPLY_FRAME = 60


def compose_state_prompt(
    branch: Branch,
    *,
    turn: Turn,
    base: ChatState | None,
    values: PolicyValues,
    model: ModelSpec,
    counter: TokenCounter,
) -> SidePrompt | None:
    """Compose the call for the state after the question. None if there is nothing new to read."""
    schema, known = values.state_schema, base.values if base else {}
    limits = side_calls.load_side_limits(branch, values=values, model=model)
    frame = build_state_request(question=(), state=known, schema=schema)
    room = limits.tokens - sum(count_wire_tokens(wire, counter) for wire in frame)
    read = load_new_user_messages(branch, turn=turn, base=base, room=room, counter=counter)
    if not read:
        return None
    room -= sum(message.tokens for message in read)
    reply = load_previous_reply(branch, read[-1], room=room, counter=counter)
    replied = engine.extract_message_text(reply)[-LONGEST_REPLY:] if reply else ""
    system, asked = build_state_request(question=read, state=known, schema=schema, replied=replied)
    context = counter.count(replied) if replied else 0
    texts = [
        ("system", STATE_V2, system.content, count_wire_tokens(system, counter)),
        ("tail", "schema", text := format_request_schema(schema), counter.count(text)),
    ]
    if known:
        texts.append(("tail", "state", text := format_state_text(known), counter.count(text)))
    tokens = count_wire_tokens(system, counter) + count_wire_tokens(asked, counter)
    # The frame around the texts counts towards the newest message.
    sizes = [message.tokens for message in read[:-1]]
    sizes.append(max(tokens - sum(size for *_, size in texts) - context - sum(sizes), 0))
    return SidePrompt(
        request=limits.build_request(
            (system, asked),
            most=min(values.reserve_tokens, model.max_output or 10**9),
            state=StateTask(
                schema=schema,
                values=known,
                texts=tuple(engine.extract_message_text(m) for m in read),
            ),
        ),
        texts=texts,
        read=list(zip(read, sizes, strict=True)),
        replied=(reply, context, side_calls.cut_of(reply, LONGEST_REPLY)) if reply else None,
        budget=limits.build_budget(
            system=texts[0][3],
            history=context,
            tail=sum(size for *_, size in texts[1:]),
            question=sum(sizes),
        ),
        tokens=tokens,
    )


def load_previous_reply(
    branch: Branch, message: engine.Message, *, room: int, counter: TokenCounter
) -> engine.Message | None:
    """Return the message directly before another if it is a reply that prompts may quote.

    None if the part of it that a request quotes does not fit into `room` tokens.
    """
    rows = history.select_path_messages(branch, after=message.seq - 2, before=message.seq)
    rows = rows.filter(build_sendable_filter(), role=Message.Role.ASSISTANT)
    found = history.load_all(rows, counter=counter)
    text = engine.extract_message_text(found[0])[-LONGEST_REPLY:] if found else ""
    return found[0] if text.strip() and counter.count(text) <= room - REPLY_FRAME else None


def load_new_user_messages(
    branch: Branch,
    *,
    turn: Turn,
    base: ChatState | None,
    room: int,
    counter: TokenCounter,
) -> tuple[engine.Message, ...]:
    """Return the user's messages since the last state update, up to the question.

    Returns the newest ones that fit into `room` tokens, but at least one if there is any.
    """
    question, _ = turn_question.load_turn_messages(turn, branch=branch)
    if not question:
        return ()
    after = base.to_seq if base else 0
    rows = history.select_path_messages(branch, after=after, before=(question[0].seq or 0) + 1)
    messages = rows.filter(role=Message.Role.USER, excluded=False).order_by("-seq")
    fitting: list[engine.Message] = []
    for message in history.load_all(messages[:MOST_MESSAGES], counter=counter):
        room -= message.tokens
        if fitting and room < 0:
            break
        fitting.append(message)
    return tuple(reversed(fitting))
