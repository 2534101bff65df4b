"""Choose excerpts from other chats that help to answer a question, and read them for prompts.

The choice is made once per turn and stored as rows that refer to messages. Each prompt reads the
text from the messages, so erased or withdrawn text is never sent. Words decide, and embeddings if a
model is set up. If nothing exceeds the floor, the prompt has no block of references.
"""

import re
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from chats.memory.archive import texts_of
from chats.memory.meaning import Look
from chats.memory.question import is_greeting
from chats.memory.recall import Passage, Scope, recall, with_branches
from chats.models import Branch, Chat, Message, TurnReference
from chats.record.history import on_path
from chats.record.zones import day_in
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.transcript import EntryRole, TextEntry

# Maximum excerpts per chat, unless only one chat is searched.
MOST_OF_A_CHAT = 2
# A shorter question is searched together with the person's previous message.
SHORT_QUESTION = 5
# Maximum characters of an excerpt, and number of the newest messages that the prompt contains
# anyway.
LONGEST = 1_000
MOST_LEFT_OUT = 400
# The number of passages of the chat itself that are examined: its prompt contains some of them.
OWN_CANDIDATES = 600
# Number of the best passages whose neighbours are added before other passages.
BEST = 25
# Where room is left, the best passages bring more of the conversation around them, the nearest
# messages first; each group of steps is one query.
CONTEXT = tuple(
    tuple(step for far in reach for step in (far, -far)) for reach in (range(2, 6), range(6, 21))
)
# A neighbour of fewer characters is too short to be useful, unless it answers a question.
SHORTEST = 20
# A message that is not a question gets fewer excerpts, with more shared words each.
STATED_FLOOR, STATED_COUNT = 2, 8
# Tokens for the date, speaker and line break of an excerpt.
ENTRY_TOKENS = 14
# Weight of a word that is rare in the person's chats, in ordinary words.
RARE = 2


# Words that begin questions and requests, and words that occur anywhere in a question in scripts
# without spaces.
_BEGINNINGS = """
    what what's who who's whom whose when where which why how did does do is are was were can could
    would should have has had will tell list show find remind summarise summarize explain describe
    give name compare recall
    was wer wem wen wessen wann wo woher wohin welche welcher welches welchen warum wieso wie hat
    hatte ist sind kannst können nenne zeige zeig sag sage erzähl erkläre liste fasse
    qui que quoi quand où quel quelle quels quelles pourquoi comment combien dis montre rappelle
    explique résume qué quién quiénes cuándo dónde cuál cuáles cómo cuánto cuánta cuántos cuántas
    por dime muestra recuérdame explica resume che cosa chi quando dove quale quali perché come
    quanto dimmi quem onde qual quais como diga lembre wat waar wanneer welk waarom hoe
    что кто когда где какой какая какое какие почему как сколько чей скажи покажи напомни расскажи
    무엇 뭐 누가 누구 언제 어디 어느 왜 어떻게 몇 ما ماذا من متى أين كيف لماذا هل كم
"""
_STARTS = frozenset(_BEGINNINGS.split())
_INSIDE = re.compile(
    "什么|甚麼|什麼|谁|誰|哪|多少|几|为何|怎么|怎麼|如何|吗|嗎|请问|告诉|列出|总结|"
    "何|いつ|どこ|どの|どれ|なぜ|どう|教えて|ですか|ますか|"
    "무엇|누구|언제|어디|알려|습니까|나요|อะไร|ใคร|เมื่อไ|ที่ไหน|ทำไม|อย่างไร"
)
_FIRST_WORD = re.compile(r"\W*([\w'’-]+)")


@dataclass(frozen=True, slots=True)
class Reference:
    """A part of a message that is sent with a question."""

    message_id: uuid.UUID
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class ChosenReferences:
    """The chosen references in order of time; without any, `note` gives the reason.

    `by_words`: why embeddings were not used, if they should have been.
    """

    references: Sequence[Reference] = ()
    note: str = ""
    by_words: str = ""


def asked_with(text: str, *, seq: int | None, branch: Branch) -> str:
    """Return the search text of a question; a short one includes the previous user message.

    A greeting is short too, and is searched alone.
    """
    if len(text.split()) >= SHORT_QUESTION or seq is None or is_greeting(text):
        return text
    earlier = on_path(branch, after=0, before=seq).filter(
        role=Message.Role.USER, excluded=False, erased_at=None
    )
    before = earlier.order_by("-seq").first()
    return f"{before.text}\n{text}" if before else text


def scope_of(chat: Chat, *, scope: str) -> Scope:
    """Return the chats that a policy allows a chat to recall from.

    `folder`: the chats of its folder, or all without a folder if it has none.
    """
    if scope == "chat":
        return Scope("chat", chat.pk)
    if scope == "folder" and chat.folder_id is not None:
        return Scope("folder", chat.folder_id)
    return Scope("person", unfiled=scope == "folder")


def in_prompt_anyway(branch: Branch, *, covered: int, window: int | None) -> list[uuid.UUID]:
    """Return the newest messages of a branch that its prompt contains or may contain."""
    after = max(covered, branch.last_seq - window if window else 0)
    rows = on_path(branch, after=after, before=branch.last_seq + 1).order_by("-seq")
    return list(rows.values_list("pk", flat=True)[:MOST_LEFT_OUT])


def find(
    *,
    chat: Chat,
    question: str,
    values: PolicyValues,
    leave_out: Collection[uuid.UUID],
    is_closed: Callable[[uuid.UUID], bool],
    counter: TokenCounter,
    at: datetime,
    look: Look | None = None,
) -> ChosenReferences:
    """Choose the references of a question asked at the time `at`.

    `is_closed` returns True for a chat whose policy excludes it from search. Without references,
    `note` is `none` if nothing was found, otherwise `below_floor`. `look` compares by embedding.
    """
    scope = scope_of(chat, scope=values.reference_scope)
    recalled = recall(
        chat.owner_id,
        question,
        scope=scope,
        limit=values.reference_count * 3,
        at=at,
        leave_out=leave_out,
        look=look,
    )
    late = "late" if recalled.is_late else ""
    passages = [passage for passage in recalled.passages if passage.message_id is not None]
    if not passages:
        return ChosenReferences(note="none", by_words=late)
    telling = [passage for passage in passages if strength(passage) >= values.reference_floor]
    chosen: list[Passage] = []
    of_a_chat: Counter[uuid.UUID] = Counter()
    room = values.reference_tokens
    for passage in telling:
        tokens = counter.count(excerpt(passage.text, *range_of(passage)))
        is_enough = scope.kind != "chat" and of_a_chat[passage.chat_id] >= MOST_OF_A_CHAT
        if is_enough or tokens > room or is_closed(passage.chat_id):
            continue
        chosen.append(passage)
        of_a_chat[passage.chat_id] += 1
        room -= tokens
        if len(chosen) == values.reference_count:
            break
    if not chosen:
        return ChosenReferences(note="below_floor", by_words=late)
    chosen.sort(key=lambda passage: (passage.written_at, str(passage.message_id)))
    return ChosenReferences([reference_of(passage) for passage in chosen], by_words=late)


def find_in_chat(
    branch: Branch,
    *,
    question: str,
    before: int,
    values: PolicyValues,
    room: int,
    sent: Collection[int],
    is_closed: Callable[[uuid.UUID], bool],
    counter: TokenCounter,
    at: datetime,
    look: Look | None = None,
) -> ChosenReferences:
    """Choose excerpts of a branch that its prompt leaves out, best first, within `room` tokens.

    `sent`: seqs of the messages in the prompt. Only messages of the branch with a seq below
    `before` are used. A message is used whole up to `LONGEST` characters, otherwise around the
    match. A question also brings the next message. `note` is as for `find`.
    """
    if is_closed(branch.chat_id) or is_greeting(question):
        return ChosenReferences(note="none")
    recalled = recall(
        branch.chat.owner_id,
        question,
        scope=Scope("chat", branch.chat_id),
        limit=OWN_CANDIDATES,
        at=at,
        look=look,
        # A short message becomes an excerpt as a whole.
        unmarked=LONGEST,
    )
    late = "late" if recalled.is_late else ""
    passages = left_out(recalled.passages, branch=branch, before=before, sent=sent)
    if not passages:
        return ChosenReferences(note="none", by_words=late)
    asks = is_question(question)
    floor = values.reference_floor if asks else max(values.reference_floor, STATED_FLOOR)
    telling = [passage for passage in passages if strength(passage) >= floor]
    most = values.reference_count if asks else min(values.reference_count, STATED_COUNT)
    filling = Filling(room=room, counter=counter, most=most)
    best, others = telling[:BEST], telling[BEST:]
    beside = partial(neighbours, branch=branch, before=before, sent=sent)
    is_open = filling.add_passages(best)
    if is_open and asks:
        is_open = filling.add_rows(best, beside(best, steps=(1, -1)))
    is_open = is_open and filling.add_passages(others)
    if is_open and asks:
        is_open = filling.add_rows(others, beside(others, steps=(1, -1)))
    for steps in CONTEXT if is_open and asks else ():
        # Remaining room is filled with more context around the best matches.
        if not filling.add_rows(best, beside(best, steps=steps), steps=steps):
            break
    if not filling.chosen:
        return ChosenReferences(note="below_floor", by_words=late)
    ordered = [filling.chosen[seq] for seq in sorted(filling.chosen)]
    return ChosenReferences(ordered, by_words=late)


def neighbours(
    passages: Sequence[Passage],
    *,
    branch: Branch,
    before: int,
    sent: Collection[int],
    steps: Sequence[int],
) -> dict[int, Message]:
    """Return the unsent messages some steps from passages, by seq."""
    seqs = {each.seq + step for each in passages for step in steps}
    rows = on_path(branch, after=0, before=before).filter(
        seq__in=seqs.difference(sent), excluded=False, erased_at=None
    )
    return {row.seq or 0: row for row in rows.only("seq", "parts")}


@dataclass(slots=True)
class Filling:
    """Excerpts by seq, the remaining tokens, and the maximum number."""

    room: int
    counter: TokenCounter
    most: int
    chosen: dict[int, Reference] = field(default_factory=dict)

    def add_passages(self, passages: Sequence[Passage]) -> bool:
        """Add passages in order; return False once one does not fit."""
        return all(
            self.add(each.seq, each.message_id, each.text, *excerpt_range(each), each.score)
            for each in passages
        )

    def add_rows(
        self,
        passages: Sequence[Passage],
        rows: Mapping[int, Message],
        steps: Sequence[int] = (1, -1),
    ) -> bool:
        """Add the message after each passage, then the previous one; return False once full.

        An answer, or the message that defines "it", often shares no word with the question.
        """
        for step in steps:
            for passage in passages:
                row = rows.get(passage.seq + step)
                if row is None or passage.seq not in self.chosen:
                    continue
                text = "\n".join(texts_of(row.parts))
                answers = step == 1 and is_question(passage.text)
                if len(text) < SHORTEST and not answers:
                    continue
                end = min(len(text), LONGEST)
                if text and not self.add(row.seq or 0, row.pk, text, 0, end, passage.score):
                    return False
        return True

    def add(
        self, seq: int, message_id: uuid.UUID | None, text: str, start: int, end: int, score: float
    ) -> bool:
        """Add an excerpt once; return False if it does not fit."""
        if seq in self.chosen or message_id is None:
            return True
        self.room -= self.counter.count(excerpt(text, start, end)) + ENTRY_TOKENS
        fits = self.room >= 0 and len(self.chosen) < self.most
        if fits:
            self.chosen[seq] = Reference(message_id, start, end, score=round(score, 4))
        return fits


def left_out(
    passages: Sequence[Passage], *, branch: Branch, before: int, sent: Collection[int]
) -> list[Passage]:
    """Return the passages of a branch that are not in its prompt, best first."""
    wanted = [each for each in passages if each.message_id and each.seq < before]
    ids = [each.message_id for each in wanted if each.message_id]
    own = set(
        on_path(branch, after=0, before=before).filter(pk__in=ids).values_list("pk", flat=True)
    )
    return [each for each in wanted if each.message_id in own and each.seq not in sent]


def excerpt_range(passage: Passage) -> tuple[int, int]:
    """Return the part of a message's text for an excerpt: all, or around the match."""
    length = len(passage.text)
    if length <= LONGEST:
        return 0, length
    middle = (passage.start + passage.end) // 2
    start = min(max(middle - LONGEST // 2, 0), length - LONGEST)
    space = passage.text.find(" ", start, start + LONGEST // 5) if start else -1
    end = min(start + LONGEST, length)
    last = passage.text.rfind(" ", end - LONGEST // 5, end) if end < length else end
    return (space + 1 if space >= 0 else start), (last if last > 0 else end)


def is_question(text: str) -> bool:
    """Return True if a text asks for something: it has a question mark, or begins as a request.

    A request such as "Tell me …" or "列出…" is a question too.
    """
    first = _FIRST_WORD.match(text.casefold())
    starts = first is not None and first.group(1) in _STARTS
    return starts or any(mark in text for mark in "?？؟") or bool(_INSIDE.search(text))


def strength(passage: Passage) -> int:
    """Return the number of significant shared words; a rare one counts twice."""
    return max(len(passage.why), RARE if passage.above_floor else 0)


def range_of(passage: Passage) -> tuple[int, int]:
    """Return the part of a passage's text that is sent."""
    return passage.start, min(passage.end, passage.start + LONGEST)


def reference_of(passage: Passage) -> Reference:
    """Return the reference of a passage."""
    if passage.message_id is None:
        raise ValueError("a summary is no reference")
    return Reference(passage.message_id, *range_of(passage), score=round(passage.score, 4))


def excerpt(text: str, start: int, end: int) -> str:
    """Return a part of a text, with ellipses where text was left out."""
    before = "… " if start > 0 else ""
    after = " …" if end < len(text) else ""
    return f"{before}{text[start:end].strip()}{after}"


def entries_of(
    found: ChosenReferences, *, is_plain: bool = False, zone: str = ""
) -> tuple[TextEntry, ...]:
    """Return references in prompt form before they are stored with a turn."""
    rows = Message.objects.filter(pk__in=[each.message_id for each in found.references])
    messages = {row.pk: row for row in rows.select_related("branch__chat")}
    kept = (
        TurnReference(message=messages[each.message_id], start=each.start, end=each.end)
        for each in found.references
        if each.message_id in messages
    )
    return tuple(
        entry_of(row, "\n".join(texts_of(row.message.parts)), is_plain=is_plain, zone=zone)
        for row in kept
    )


def of_turn(turn_id: uuid.UUID, *, owner_id: int) -> list[TurnReference]:
    """Return the references of a turn that may still be sent, in order.

    Leaves out messages that were erased or excluded, or whose chat was deleted.
    """
    rows = TurnReference.objects.filter(
        turn=turn_id,
        message__branch__chat__owner=owner_id,
        message__branch__chat__deleted_at=None,
        message__excluded=False,
        message__erased_at=None,
    )
    found = list(rows.select_related("message").order_by("place"))
    with_branches([row.message for row in found])
    return found


def entries(
    turn_id: uuid.UUID,
    *,
    owner_id: int,
    is_plain: bool = False,
    zone: str = "",
    shown: Callable[[Message], str] | None = None,
) -> tuple[TextEntry, ...]:
    """Return the references of a turn in prompt form: date, speaker, text.

    `is_plain`: only the text. Dates are in `zone`, or UTC without one. `shown` returns a message's
    text as the reader of the prompt may see it; references with an empty text are left out.
    """
    made = (
        (row, shown(row.message) if shown else "\n".join(texts_of(row.message.parts)))
        for row in of_turn(turn_id, owner_id=owner_id)
    )
    return tuple(
        entry_of(row, text, is_plain=is_plain, zone=zone)
        for row, text in made
        if text[row.start : row.end].strip()
    )


def entry_of(row: TurnReference, text: str, *, is_plain: bool = False, zone: str = "") -> TextEntry:
    """Return one reference in prompt form; `is_plain`: without date and speaker."""
    message = row.message
    role: EntryRole = "user" if message.role == Message.Role.USER else "assistant"
    day = day_in(zone, message.created_at) if zone else f"{message.created_at:%Y-%m-%d}"
    told = f"{day}, {message.said_by}" if message.speaker else day
    part = excerpt(text, row.start, row.end)
    return TextEntry(role, part if is_plain else f"({told}) {part}")
