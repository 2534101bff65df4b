"""The relevance floor ignores the grammar of any language, and words of most texts."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.memory.search import archive
from chats.memory.search.recall import FoundExcerpt, recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.models import Branch, Chat
from tests.support.messages_without_turns import Say

CASES = [
    (
        "¿Cuál es la capital de Francia?",
        "¿Cuál es la mejor harina de trigo? La receta es de mi abuela.",
        "La capital de Francia es París.",
    ),
    (
        "Was ist die Hauptstadt der Schweiz?",
        "Was ist die beste Sorte Mehl, und wie lange muss der Teig ruhen?",
        "Die Hauptstadt der Schweiz ist Bern.",
    ),
    (
        "Quelle est la capitale de la Suisse ?",
        "Quelle est la meilleure farine de la région ?",
        "La capitale de la Suisse est Berne.",
    ),
    (
        "Qual è la capitale della Francia?",
        "Qual è la farina migliore della regione?",
        "La capitale della Francia è Parigi.",
    ),
    (
        "Qual é a capital da França?",
        "Qual é a melhor farinha da região?",
        "A capital da França é Paris.",
    ),
    (
        "Wat is de hoofdstad van het land?",
        "Wat is de beste bloem van het jaar?",
        "De hoofdstad van het land is Amsterdam.",
    ),
    (
        "Какая столица у Франции и что там есть?",
        "Какая мука лучше и что у нас есть?",
        "Столица Франции это Париж.",
    ),
    ("法国的首都叫什么？", "我的面包是什么做的？叫什么？", "法国的首都是巴黎。"),
]


def list_above_floor(alice: User, question: str, now: datetime) -> list[FoundExcerpt]:
    for branch in Branch.objects.select_related("chat", "active_compaction__base", "parent"):
        archive.index_branch(branch)
    found = recall_excerpts(alice.pk, question, scope=Scope(), limit=100, at=now)
    return [each for each in found.excerpts if each.above_floor]


@pytest.mark.parametrize(("question", "other", "answer"), CASES)
def test_grammar_and_question_words_tell_nothing(
    alice: User, chat: Chat, say: Say, now: datetime, question: str, other: str, answer: str
) -> None:
    for number in range(3):
        say(f"{other} {number}")
    say(answer)
    assert [each.text for each in list_above_floor(alice, question, now)] == [answer]


def test_words_of_many_texts_tell_nothing(alice: User, chat: Chat, say: Say, now: datetime) -> None:
    """Swahili: no list of its grammar exists here."""
    for number in range(60):
        say(f"Hii ni habari ya siku {number}.")
        say(f"Kitu kingine {number}.")
    say("Mji mkuu ya nchi: Paris.")
    found = list_above_floor(alice, "Habari ya mji mkuu ni ipi siku hii?", now)
    assert [each.text for each in found] == ["Mji mkuu ya nchi: Paris."]


def test_a_question_of_frequent_words_alone_is_still_answered(
    alice: User, chat: Chat, say: Say, now: datetime
) -> None:
    for number in range(60):
        say(f"The garden fence, part {number}.")
    assert list_above_floor(alice, "Which garden fence did Olaf paint?", now)
