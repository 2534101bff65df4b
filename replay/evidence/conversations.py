"""Parses conversations with questions: LoCoMo and BEAM as published, and the project's own format.

The project's format is a file `NAME.jsonl` with a message on each line, `{"id", "role", "name"?,
"content", "created_at"}`, and a file `NAME.qa.jsonl` with a question on each line, `{"q_id",
"question", "answer", "category", "evidence": [message ids]}`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

# No message answers these questions.
UNANSWERABLE = frozenset({"adversarial", "abstention"})
TEMPORAL = frozenset({"temporal", "temporal_reasoning"})
LOCOMO_CATEGORIES = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "adversarial",
}
BEAM_ANSWERS = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "expected_compliance")
# LoCoMo and BEAM give times for sessions only.
BETWEEN_MESSAGES = timedelta(seconds=30)
# The text that BEAM's generator appends to its messages.
BEAM_TAG = re.compile(r"\s*->->\s*[\d, N/A]+\s*$")
EARLIEST = datetime(2024, 1, 1, 9, tzinfo=UTC)


class NotAConversation(ValueError):
    """A file is not in a supported format. The message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A message of a conversation; `name` is empty if the file names no speakers."""

    id: str
    role: Literal["user", "assistant"]
    name: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EvidenceQuestion:
    """A question, its answer, and the ids of the messages that contain the answer."""

    id: str
    text: str
    answer: str
    category: str
    evidence: Sequence[str]

    @property
    def is_temporal(self) -> bool:
        """Return True if the answer depends on when something was said."""
        return self.category in TEMPORAL


@dataclass(frozen=True, slots=True)
class QuestionedConversation:
    """Messages in order, and the answerable questions whose evidence is among them."""

    name: str
    messages: Sequence[SaidMessage]
    questions: Sequence[EvidenceQuestion]


def read_all(paths: Iterable[Path]) -> list[QuestionedConversation]:
    """Read files and folders. Raises `NotAConversation`, also if none is found."""
    paths = list(paths)
    found = [
        one for path in paths for file in list_conversation_files(path) for one in read_file(file)
    ]
    if not found:
        listed = ", ".join(map(str, paths))
        raise NotAConversation(f"{listed}: no conversation with questions was found.")
    return found


def list_conversation_files(path: Path) -> list[Path]:
    """Return the files in a folder that may contain conversations, or the file itself."""
    if not path.is_dir():
        return [path]
    lines = [file.with_name(file.name.replace(".qa.", ".")) for file in path.glob("*.qa.jsonl")]
    documents = [file for file in path.glob("*.json") if not file.name.endswith("questions.json")]
    nested = [file for file in path.glob("*/chat.json") if find_questions_file(file) is not None]
    return sorted([*lines, *documents, *nested])


def read_file(path: Path) -> Iterator[QuestionedConversation]:
    """Yield the conversations of one file. Raises `NotAConversation`.

    A JSON document that contains no conversation yields nothing.
    """
    try:
        if path.suffix == ".jsonl":
            yield read_own_conversation(path)
            return
        document = json.loads(path.read_text(encoding="utf-8"))
        values = document if isinstance(document, list) else [document]
        locomo = [
            one for one in values if isinstance(one, dict) and {"conversation", "qa"} <= {*one}
        ]
        for number, value in enumerate(locomo):
            yield parse_locomo_conversation(
                value, name=str(value.get("sample_id") or f"{path.stem}-{number}")
            )
        if not locomo and values and isinstance(values[0], dict) and "turns" in values[0]:
            yield parse_beam_conversation(path, values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotAConversation(f"{path}: {type(error).__name__}: {error}") from error


def build_questioned_conversation(
    name: str, messages: Iterable[SaidMessage], questions: Iterable[EvidenceQuestion]
) -> QuestionedConversation:
    """Return a conversation without empty messages and without questions that cannot be scored."""
    said = [one for one in messages if one.text.strip()]
    known = {one.id for one in said}
    asked = [replace(one, evidence=[e for e in one.evidence if e in known]) for one in questions]
    return QuestionedConversation(
        name, said, [one for one in asked if one.evidence and one.category not in UNANSWERABLE]
    )


def read_own_conversation(path: Path) -> QuestionedConversation:
    said = [
        SaidMessage(
            id=str(line["id"]),
            role=line["role"],
            name=line.get("name") or "",
            text=line.get("content") or "",
            at=datetime.fromisoformat(line["created_at"]),
        )
        for line in read_jsonl_objects(path)
        if line["role"] in ("user", "assistant")
    ]
    asked = [
        EvidenceQuestion(
            id=str(line["q_id"]),
            text=line["question"],
            answer=str(line.get("answer", "")),
            category=line["category"],
            evidence=[str(one) for one in line["evidence"]],
        )
        for line in read_jsonl_objects(path.with_name(f"{path.stem}.qa.jsonl"))
    ]
    return build_questioned_conversation(path.stem, said, asked)


def read_jsonl_objects(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def parse_locomo_conversation(value: Mapping[str, Any], *, name: str) -> QuestionedConversation:
    """Parse a conversation of LoCoMo; its first speaker is the user."""
    dialogue = value["conversation"]
    person = dialogue["speaker_a"]
    said: list[SaidMessage] = []
    for number in range(1, len(dialogue)):
        begun = dialogue.get(f"session_{number}_date_time")
        at = parse_locomo_time(begun) if begun else EARLIEST
        for turn in dialogue.get(f"session_{number}") or ():
            caption = turn.get("blip_caption")
            text = turn.get("text") or ""
            said.append(
                SaidMessage(
                    id=turn["dia_id"],
                    role="user" if turn["speaker"] == person else "assistant",
                    name=turn["speaker"],
                    text=f"{text}\n[Image: {caption}]".strip() if caption else text,
                    at=at,
                )
            )
            at += BETWEEN_MESSAGES
    asked = (
        EvidenceQuestion(
            id=f"{name}-{number}",
            text=str(one["question"]),
            answer=str(one.get("answer", "")),
            category=LOCOMO_CATEGORIES[one["category"]],
            # Some entries name several turns in one text.
            evidence=[part for each in one["evidence"] for part in re.split(r"[;,\s]+", each)],
        )
        for number, one in enumerate(value["qa"])
    )
    return build_questioned_conversation(name, said, asked)


def parse_locomo_time(text: str) -> datetime:
    """Parse a session time such as "1:56 pm on 8 May, 2023"."""
    return datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def parse_beam_conversation(
    path: Path, batches: Sequence[Mapping[str, Any]]
) -> QuestionedConversation:
    """Parse a conversation of BEAM, with the questions in its second file."""
    said: list[SaidMessage] = []
    at = EARLIEST
    for batch in batches:
        for turn in batch["turns"]:
            for message in turn:
                at += BETWEEN_MESSAGES
                anchor = parse_beam_day(message.get("time_anchor"))
                at = max(anchor, at) if anchor else at
                said.append(
                    SaidMessage(
                        id=str(message["id"]),
                        role=message["role"],
                        name="",
                        text=BEAM_TAG.sub("", message["content"]),
                        at=at,
                    )
                )
    name = path.parent.name if path.stem == "chat" else path.stem
    second = find_questions_file(path)
    if second is None:
        return build_questioned_conversation(name, said, ())
    document = json.loads(second.read_text(encoding="utf-8"))
    asked = (
        EvidenceQuestion(
            id=f"{name}-{category}-{number}",
            text=one["question"],
            answer=next((str(one[key]) for key in BEAM_ANSWERS if key in one), ""),
            category=category,
            evidence=[str(number) for number in extract_integers(one.get("source_chat_ids"))],
        )
        for category, listed in document.items()
        for number, one in enumerate(listed)
    )
    return build_questioned_conversation(name, said, asked)


def find_questions_file(path: Path) -> Path | None:
    """Return the file with the questions about a BEAM conversation, or None."""
    places = (
        path.with_name(f"{path.stem}.questions.json"),
        path.parent / "probing_questions" / "probing_questions.json",
    )
    return next((place for place in places if place.exists()), None)


def parse_beam_day(anchor: str | None) -> datetime | None:
    """Parse a day such as "March-15-2024"; None if there is none."""
    if not anchor:
        return None
    try:
        return datetime.strptime(anchor, "%B-%d-%Y").replace(hour=9, tzinfo=UTC)
    except ValueError:
        return None


def extract_integers(value: object) -> Iterator[int]:
    """Yield the integers in nested lists and objects, each once, in order."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, int) and one not in seen:
            seen.add(one)
            yield one
        elif isinstance(one, Mapping):
            waiting[:0] = one.values()
        elif isinstance(one, list):
            waiting[:0] = one
