"""Chooses what was said elsewhere that helps to answer a question, and reads it for its prompts.

The choice is made once for a turn and kept as rows that name messages; the words are read from
there for each prompt, so that what is erased or withdrawn is in none. Words decide, and meaning
where an operator chose a model for it; where nothing clears the floor there is no block at all.
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
from chats.memory.question import without_greetings
from chats.memory.recall import Passage, Scope, recall
from chats.models import Branch, Chat, Message, TurnReference
from chats.record.history import on_path
from chats.record.zones import day_in
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.engine.transcript import EntryRole, TextEntry

# Of one chat only so many, unless it is the only one that is looked through.
MOST_OF_A_CHAT = 2
# A question of fewer words is looked up with the person's message before it.
SHORT_QUESTION = 5
# Most characters of one passage, and most of the newest messages that are in the prompt anyway.
LONGEST = 1_000
MOST_LEFT_OUT = 400
# The number of passages of the chat itself that are examined: its prompt contains some of them.
OWN_CANDIDATES = 600
# So many of the best passages bring their neighbours, before worse ones are added.
BEST = 25
# A neighbour of fewer characters is too short to be useful, unless it answers a question.
SHORTEST = 20
# A message that asks nothing brings fewer excerpts, and each shares more words with it.
STATED_FLOOR, STATED_COUNT = 2, 8
# What the day, the speaker and the line of an excerpt take.
ENTRY_TOKENS = 14
# The weight of a single word that is rare in the person's chats: as two others.
RARE = 2


# The words with which questions and requests begin, and words that occur anywhere in a question in
# scripts without spaces.
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
    """A part of a message that goes along with a question."""

    message_id: uuid.UUID
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class ChosenReferences:
    """The chosen references in the order of time; without any, `note` says why.

    `by_words`: why vectors did not help, where they were to.
    """

    references: Sequence[Reference] = ()
    note: str = ""
    by_words: str = ""


def asked_with(text: str, *, seq: int | None, branch: Branch) -> str:
    """Return the search text of a question; a short one includes the previous user message.

    A greeting is short too, and is searched alone.
    """
    is_greeting = not any(map(str.isalnum, without_greetings(text)))
    if len(text.split()) >= SHORT_QUESTION or seq is None or is_greeting:
        return text
    earlier = on_path(branch, after=0, before=seq).filter(
        role=Message.Role.USER, excluded=False, erased_at=None
    )
    before = earlier.order_by("-seq").first()
    return f"{before.text}\n{text}" if before else text


def scope_of(chat: Chat, *, scope: str) -> Scope:
    """Return the chats that a policy lets a chat recall from.

    `folder`: those of its folder, or those in no folder where it lies in none.
    """
    if scope == "chat":
        return Scope("chat", chat.pk)
    if scope == "folder" and chat.folder_id is not None:
        return Scope("folder", chat.folder_id)
    return Scope("person", unfiled=scope == "folder")


def in_prompt_anyway(branch: Branch, *, covered: int, window: int | None) -> list[uuid.UUID]:
    """Return the newest messages of a branch that its prompt has anyway, or may have."""
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
    """Choose the references of a question that was asked `at` a time.

    `is_closed` tells of a chat whether its policy keeps its messages out of every search.
    Without any the note is `none` where nothing was found, else `below_floor`. `look` compares by
    meaning too.
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

    `sent` has the seqs of the messages that the prompt contains; only messages of the branch with a
    seq under `before` are excerpts. A message is given whole where it is at most `LONGEST`
    characters long, else around the words that match. A question brings the message behind it. The
    notes are those of `find`.
    """
    if is_closed(branch.chat_id):
        return ChosenReferences(note="none")
    recalled = recall(
        branch.chat.owner_id,
        question,
        scope=Scope("chat", branch.chat_id),
        limit=OWN_CANDIDATES,
        at=at,
        look=look,
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
    """Return the messages some steps from passages, by seq, that a prompt leaves out."""
    seqs = {each.seq + step for each in passages for step in steps}
    rows = on_path(branch, after=0, before=before).filter(
        seq__in=seqs.difference(sent), excluded=False, erased_at=None
    )
    return {row.seq or 0: row for row in rows}


@dataclass(slots=True)
class Filling:
    """Excerpts by their seq, the tokens that are left for more, and the most excerpts."""

    room: int
    counter: TokenCounter
    most: int
    chosen: dict[int, Reference] = field(default_factory=dict)

    def add_passages(self, passages: Sequence[Passage]) -> bool:
        """Add passages in their order; return False once one does not fit."""
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

        What answers a question, or says what "it" is, shares no word with the passage.
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
        """Add an excerpt; returns False if it no longer fits. A message is added once."""
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
    """Return the passages that are messages of a branch and not in its prompt, best first."""
    wanted = [each for each in passages if each.message_id and each.seq < before]
    ids = [each.message_id for each in wanted if each.message_id]
    own = set(
        on_path(branch, after=0, before=before).filter(pk__in=ids).values_list("pk", flat=True)
    )
    return [each for each in wanted if each.message_id in own and each.seq not in sent]


def excerpt_range(passage: Passage) -> tuple[int, int]:
    """Return the part of a message's text for an excerpt: all of it, or that around the match."""
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
    """Return how many telling words a passage shares with the question; a rare one counts twice."""
    return max(len(passage.why), RARE if passage.above_floor else 0)


def range_of(passage: Passage) -> tuple[int, int]:
    """Return the part of a passage's text that goes along."""
    return passage.start, min(passage.end, passage.start + LONGEST)


def reference_of(passage: Passage) -> Reference:
    """Return the row of a passage of a message."""
    if passage.message_id is None:
        raise ValueError("a summary is no reference")
    return Reference(passage.message_id, *range_of(passage), score=round(passage.score, 4))


def excerpt(text: str, start: int, end: int) -> str:
    """Return a part of a text, with marks where something was left out."""
    before = "… " if start > 0 else ""
    after = " …" if end < len(text) else ""
    return f"{before}{text[start:end].strip()}{after}"


def entries_of(
    found: ChosenReferences, *, is_plain: bool = False, zone: str = ""
) -> tuple[TextEntry, ...]:
    """Return chosen references as a prompt would have them, before any turn keeps them."""
    rows = Message.objects.filter(pk__in=[each.message_id for each in found.references])
    messages = {row.pk: row for row in rows.select_related("branch__chat")}
    kept = (
        TurnReference(message=messages[each.message_id], start=each.start, end=each.end)
        for each in found.references
        if each.message_id in messages
    )
    return tuple(entry_of(row, is_plain=is_plain, zone=zone) for row in kept)


def of_turn(turn_id: uuid.UUID, *, owner_id: int) -> list[TurnReference]:
    """Return the references of a turn whose words may still be sent, in their order.

    Of messages that were erased, excluded or deleted with their chat meanwhile there is none.
    """
    rows = TurnReference.objects.filter(
        turn=turn_id,
        message__branch__chat__owner=owner_id,
        message__branch__chat__deleted_at=None,
        message__excluded=False,
        message__erased_at=None,
    )
    return list(rows.select_related("message__branch__chat").order_by("place"))


def entries(
    turn_id: uuid.UUID, *, owner_id: int, is_plain: bool = False, zone: str = ""
) -> tuple[TextEntry, ...]:
    """Return the references of a turn as a prompt has them: the day, who said it, the words.

    `is_plain`: the words alone. The day is that in a time zone; without one, that of UTC.
    """
    rows = of_turn(turn_id, owner_id=owner_id)
    return tuple(entry_of(row, is_plain=is_plain, zone=zone) for row in rows)


def entry_of(row: TurnReference, *, is_plain: bool = False, zone: str = "") -> TextEntry:
    """Return one reference as a prompt has it; `is_plain`: without its day and speaker."""
    message = row.message
    role: EntryRole = "user" if message.role == Message.Role.USER else "assistant"
    day = day_in(zone, message.created_at) if zone else f"{message.created_at:%Y-%m-%d}"
    told = f"{day}, {message.said_by}" if message.speaker else day
    text = excerpt("\n".join(texts_of(message.parts)), row.start, row.end)
    return TextEntry(role, text if is_plain else f"({told}) {text}")
