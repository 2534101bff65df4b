"""The measure of evidence in prompts, and its minimum on the project's data set."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chats.models import Chat, Compaction, Message
from chats.prompt.tokenizer import O200kCounter
from contextpolicy.models import PolicyAssignment
from contextpolicy.presets import LONG_CHATS, Preset
from replay.evidence import chats
from replay.evidence.baselines import Baselines
from replay.evidence.conversations import (
    EvidenceQuestion,
    NotAConversation,
    QuestionedConversation,
    SaidMessage,
    read_all,
)
from replay.evidence.measure import Scorer, Scores, ask_all, count_common_tokens
from replay.evidence.presence import SearchedPrompt, WordRarity
from replay.management.commands.evidence import LIMITS, list_measurable_presets

OWN = Path(__file__).resolve().parents[1] / "recordings" / "evidence"
# A third of the English conversation, and half of the Chinese one.
LIMIT = 1_500
FLOOR = 0.85
WITHOUT = replace(LONG_CHATS, values={"strategy": "dynamic_summary", "turn_threshold": None})
NO_WORDS = WordRarity.of([])
HERON = "The grey heron at Lake Vogt wears the ring B-417, and its nest is in the third alder."


def asked(
    conversation: QuestionedConversation,
    *,
    preset: Preset = LONG_CHATS,
    most: int = 100,
    limit: int = LIMIT,
) -> Scores:
    """Import a conversation and ask its questions."""
    counter = O200kCounter()
    chats.set_up_model()
    chats.use_policy(preset, limit=limit, now=conversation.messages[0].at)
    measured = chats.import_chat(conversation, counter=counter)
    chats.trigger_summaries(measured)
    scorer = Scorer(conversation, counter=counter)
    return Scores(list(ask_all(measured, conversation.questions[:most], scorer=scorer)))


@pytest.mark.requirement("S1.2")
@pytest.mark.parametrize("name", ["year-in-english", "year-in-chinese"])
def test_most_questions_find_their_evidence_and_its_day_in_the_prompt(db: None, name: str) -> None:
    (conversation,) = read_all([OWN / f"{name}.jsonl"])

    scores = asked(conversation)

    assert scores.share() >= FLOOR, scores.lost()
    assert (scores.share_with_day() or 0) >= 0.75
    assert scores.tokens() <= LIMIT
    assert Compaction.objects.filter(kind="summary", status="published").exists()


def test_without_retrieved_context_the_floor_is_missed(db: None) -> None:
    (conversation,) = read_all([OWN / "year-in-english.jsonl"])

    scores = asked(conversation, preset=WITHOUT, most=8)

    assert scores.share() < FLOOR
    assert set(scores.lost()) == {"covered"}


def test_the_own_set_has_questions_in_two_languages_about_times_and_several_messages() -> None:
    for conversation in read_all([OWN]):
        assert 60 <= len(conversation.messages) <= 120
        assert 12 <= len(conversation.questions) <= 20
        assert sum(one.is_temporal for one in conversation.questions) >= 4
        assert any(len(one.evidence) > 1 for one in conversation.questions)
        assert conversation.messages[-1].at.year == 2025


def said(*texts: str, at: Any) -> list[SaidMessage]:
    """Messages of both sides in turn."""
    return [
        SaidMessage(f"m{place}", "user" if place % 2 == 0 else "assistant", "", text, at)
        for place, text in enumerate(texts)
    ]


def about(messages: Sequence[SaidMessage], question: str, *evidence: str) -> QuestionedConversation:
    """A conversation with one question."""
    asking = EvidenceQuestion("q", question, "B-417", "temporal", evidence)
    return QuestionedConversation("birds", messages, [asking])


def talk(now: Any, rounds: int = 14) -> list[SaidMessage]:
    """A conversation about bread that begins with a bird."""
    bread = [
        text
        for number in range(rounds)
        for text in (f"Tell me about bread number {number}. " * 5, "It has a crust. " * 20)
    ]
    return said(HERON, "Noted, thank you.", *bread, at=now)


def test_a_played_conversation_has_its_summaries_and_prompts(db: None, now: Any) -> None:
    conversation = about(talk(now), "Which ring does the heron wear?", "m0")
    counter = O200kCounter()
    chats.set_up_model()
    chats.use_policy(LONG_CHATS, limit=LIMIT, now=now)

    played = chats.play_chat(conversation, counter=counter)

    assert Message.objects.filter(branch__chat=played.chat).count() == len(conversation.messages)
    assert Compaction.objects.filter(branch__chat=played.chat).exists()
    assert len(played.worker.prompts) == 15
    (score,) = ask_all(played, conversation.questions, scorer=Scorer(conversation, counter=counter))
    assert Message.objects.filter(branch__chat=played.chat).count() == len(conversation.messages)
    assert score.present + sum(score.lost.values()) == 1


@pytest.mark.parametrize(
    ("question", "values", "step"),
    [
        ("Tell me its number.", {}, "floor"),
        ("Which ring does the heron wear?", {"references": False}, "covered"),
        ("Which ring does the heron wear?", {"archive": False}, "not indexed"),
    ],
)
def test_a_lost_message_names_its_step(
    db: None, now: Any, question: str, values: dict[str, Any], step: str
) -> None:
    window = {"strategy": "simple", "window_size": 4}
    preset = replace(LONG_CHATS, values={**LONG_CHATS.values, **window, **values})

    scores = asked(about(talk(now), question, "m0"), preset=preset)

    assert scores.lost() == {step: 1}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("preset", list_measurable_presets(), ids=lambda preset: preset.slug)
def test_every_measured_preset_is_valid_with_every_limit(
    db: None, now: Any, preset: Preset, limit: int
) -> None:
    chats.use_policy(preset, limit=limit, now=now)
    assert PolicyAssignment.objects.filter(policy__slug=f"evidence-{preset.slug}-{limit}").exists()


def test_nothing_of_a_question_stays_in_its_chat(db: None, now: Any) -> None:
    conversation = about(talk(now), "Which ring does the heron wear?", "m0")

    asked(conversation, limit=LIMIT)

    assert Chat.objects.count() == 1
    # The conversation, and the goodbye with its reply.
    assert Message.objects.count() == len(conversation.messages) + 2


@pytest.mark.parametrize(
    ("prompt", "is_there"),
    [
        (HERON, True),
        (f"Excerpts:\n(2026-11-20) {HERON.upper()}", True),
        # Only the sentence with the answer.
        ("The heron wears the ring B-417.", False),
        ("It was seen by two of us. It wears the ring B-417", True),
        ("It was seen by two of us.", False),
        ("", False),
    ],
)
def test_a_message_is_present_with_its_words_or_those_of_the_answer(
    prompt: str, is_there: bool
) -> None:
    message = HERON
    if prompt.startswith("It was"):
        message = "It was seen by two of us. It wears the ring B-417. " + "Bread is good too. " * 9
    rarity = WordRarity.of([message, "Bread is good.", "We saw it."])

    assert (
        SearchedPrompt([prompt]).contains(message, answer="ring B-417", rarity=rarity) is is_there
    )


def test_chinese_counts_by_characters() -> None:
    prompt = SearchedPrompt(["（2025-02-13）挂了园区医院康复科的号，医生叫顾立群。"])

    assert prompt.contains("挂了园区医院康复科的号", answer="", rarity=NO_WORDS)
    assert not prompt.contains("我妈从盐城过来住，说要帮我们", answer="", rarity=NO_WORDS)


def test_a_day_holds_for_the_lines_below_it() -> None:
    prompt = SearchedPrompt(
        [
            "(2025-03-02) First line.\nSecond line, planned for 2025-09-01.\n(2025-03-03) Third.",
            "No day here.",
        ]
    )

    assert prompt.of_day("2025-03-02").texts[0].endswith("for 2025-09-01.")
    # Also for the next message: history has a date line where a day begins.
    assert prompt.of_day("2025-03-03").texts == ["(2025-03-03) Third.", "No day here."]
    assert prompt.of_day("2025-09-01").texts[0].startswith("Second")


def test_the_baselines_fill_the_limit_and_no_more(now: Any) -> None:
    counter = O200kCounter()
    conversation = about(talk(now), "Which ring does the heron wear?", "m0")
    baselines = Baselines(conversation, counter=counter)

    window = baselines.last_window("Which ring?", limit=300)
    best = baselines.best_matches("Which ring does the heron wear?", limit=300)

    assert 150 < sum(map(counter.count, window)) <= 300
    assert window[-2] == conversation.messages[-1].text
    assert sum(map(counter.count, best)) <= 300
    assert any(HERON in text for text in best)
    # A full window begins with another message each turn.
    first, second = baselines.windows(limit=300, most=2)
    assert count_common_tokens(first, second, counter=counter) < 300
    assert count_common_tokens(["a", "bread"], ["a", "bread and milk"], counter=counter) == 2


def test_locomo_is_read_as_published(tmp_path: Path) -> None:
    document = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ben", "dia_id": "D1:1", "text": "Hello"},
                {"speaker": "Ann", "dia_id": "D1:2", "text": "", "blip_caption": "a dog"},
            ],
        },
        "qa": [
            {"question": "What?", "answer": 2022, "evidence": ["D1:2; D1:1"], "category": 2},
            {"question": "Who?", "evidence": ["D1:1"], "category": 5},
            {"question": "Where?", "answer": "x", "evidence": [], "category": 1},
        ],
    }
    (tmp_path / "locomo10.json").write_text(json.dumps([document]))

    (read,) = read_all([tmp_path])

    assert [(one.role, one.name, one.text) for one in read.messages] == [
        ("assistant", "Ben", "Hello"),
        ("user", "Ann", "[Image: a dog]"),
    ]
    assert read.messages[0].at.isoformat() == "2023-05-08T13:56:00+00:00"
    (question,) = read.questions
    assert (question.answer, question.is_temporal) == ("2022", True)
    assert question.evidence == ["D1:2", "D1:1"]


@pytest.mark.parametrize(
    "questions_path", ["chat.questions.json", "probing_questions/probing_questions.json"]
)
def test_beam_is_read_as_published(tmp_path: Path, questions_path: str) -> None:
    turn = [
        {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "Plan it. ->-> 1,1"},
        {"role": "assistant", "id": 1, "content": "Certainly."},
    ]
    questions = {
        "temporal_reasoning": [
            {"question": "When?", "answer": "Soon", "source_chat_ids": {"a": [1], "b": 0}}
        ],
        "abstention": [{"question": "Why?", "ideal_response": "Unknown", "source_chat_ids": [0]}],
    }
    folder = tmp_path / "7"
    (folder / questions_path).parent.mkdir(parents=True)
    (folder / "chat.json").write_text(json.dumps([{"batch_number": 1, "turns": [turn]}]))
    (folder / questions_path).write_text(json.dumps(questions))

    (read,) = read_all([tmp_path])

    assert read.name == "7"
    assert [one.text for one in read.messages] == ["Plan it.", "Certainly."]
    assert f"{read.messages[0].at:%Y-%m-%d}" == "2024-03-15"
    (question,) = read.questions
    assert question.evidence == ["1", "0"]


@pytest.mark.parametrize("content", ["{", '[{"turns": 3}]', '{"conversation": {}, "qa": [{}]}'])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "strange.json"
    file.write_text(content)

    with pytest.raises(NotAConversation, match=r"strange\.json"):
        read_all([file])


def test_a_folder_without_conversations_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')

    with pytest.raises(NotAConversation, match="no conversation with questions"):
        read_all([tmp_path])
