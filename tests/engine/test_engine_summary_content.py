"""A summary that says nothing about its sources is rejected, bullet by bullet."""

import pytest

from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.ladder import Attempt, select_next_rung
from contextpolicy.engine.summaries.prompts import EXAMPLE_FACT, list_instruction_texts
from contextpolicy.engine.summaries.summary_content import find_content_fault, is_refusal_text
from tests.engine.engine_builders import message
from tests.support.summary_validation import VALID_SUMMARY, validate_summary

NAMES = ("Facts", "Preferences", "Decisions", "Open items", "Done items")
# The rules of the instruction, as a model would repeat them.
RULES = [
    line
    for text in list_instruction_texts(PolicyValues())
    for line in text.splitlines()
    if line.startswith("- ") and "{" not in line
]
SOURCES = "Ann pays 40 euros a month and we take the train to Oslo."


def under_headings(*bullets: str) -> str:
    """Return a summary with these bullets under its first headings."""
    parts = [f"## {name}\n" for name in NAMES]
    for place, bullet in enumerate(bullets):
        parts[place % len(parts)] += f"{bullet}\n"
    return "".join(parts)


def fault_of(*bullets: str, sources: str = SOURCES) -> str:
    """Return the fault of a summary with these bullets."""
    return find_content_fault(
        under_headings(*bullets),
        sources_text=sources,
        instructions=list_instruction_texts(PolicyValues()),
        example=EXAMPLE_FACT,
    )


@pytest.mark.parametrize(
    "empty",
    [
        "- None",
        "(none)",
        "- N/A",
        "-",
        "- **None.**",
        "* keine",
        "- Ninguno",
        "- n.v.t.",
        "- 无",
        "- なし",
        "- कोई नहीं",
        "- User: none [#1]",
        "- No preferences were mentioned in this conversation.",
        "- None so far",
    ],
)
def test_placeholders_under_all_headings_are_no_content(empty: str) -> None:
    assert validate_summary(under_headings(*[empty] * 5)).reasons[:1] == ("no_content",)


@pytest.mark.parametrize(
    "refusal",
    [
        "I'm sorry, but I cannot summarise this conversation.",
        "I apologize, but I can't help with that.",
        "I am unable to assist with this request.",
        "**Sorry**, I can’t complete this request.",
        "申し訳ありませんが要約できません",
        "抱歉，我无法总结这段对话。",
        "Es tut mir leid, aber ich kann dieses Gespräch nicht zusammenfassen.",
        "Je suis désolé, je ne peux pas résumer cette conversation.",
        "Lo siento, no puedo resumir esta conversación.",
        "К сожалению, я не могу помочь с этим запросом.",
        "죄송하지만 이 대화를 요약할 수 없습니다.",
        "क्षमा करें, मैं इस बातचीत का सारांश नहीं दे सकता।",
    ],
)
def test_a_refusal_below_a_heading_is_a_refusal(refusal: str) -> None:
    assert is_refusal_text(refusal)
    assert fault_of(f"- {refusal}", "- None") == "refusal"
    assert "refusal" in validate_summary(under_headings(f"- {refusal}")).reasons


@pytest.mark.parametrize(
    "bullets",
    [
        (f"- User, 2023-05-08: {EXAMPLE_FACT} [#12]",),
        (f"- {EXAMPLE_FACT}", "- none"),
        tuple(RULES[:3]),
        (RULES[-1],),
    ],
)
def test_a_copy_of_the_instructions_is_an_echo(bullets: tuple[str, ...]) -> None:
    assert fault_of(*bullets) == "echo"
    assert fault_of(*bullets, "- Ann takes the train [#1]") == ""


def test_a_policys_own_instruction_is_no_fact_of_the_chat() -> None:
    values = PolicyValues(summary_instruction="Keep the price that every train costs.")
    text = under_headings("- Keep the price that every train costs.")
    assert validate_summary(text, values=values).reasons == ("echo",)


def test_the_example_is_a_fact_if_it_was_said() -> None:
    said = "Sam prefers trains to planes, as always."
    assert fault_of(f"- {EXAMPLE_FACT} [#1]", sources=said) == ""


def test_one_bullet_over_and_over_is_an_echo() -> None:
    assert fault_of(*["- Ann pays 40 euros [#2]"] * 60) == "echo"
    assert fault_of(*["- Ann pays 40 euros [#2]"] * 5) == ""


@pytest.mark.parametrize(
    ("told", "sources"),
    [
        ("- Paid: 40 [#2]", SOURCES),
        ("A paragraph about Ann.", SOURCES),
        ("- 用户想去上海旅行。", "我们下个月想去上海。"),
        ("- ผู้ใช้ชอบรถไฟ", "ฉันชอบเดินทางโดยรถไฟมาก"),
        ("- Пользователь едет поездом", "Мы поедем поездами в Осло."),
        ("- A picture of a cat", "🙂"),
    ],
)
def test_what_shares_a_word_or_a_number_with_the_sources_counts(told: str, sources: str) -> None:
    assert fault_of(told, sources=sources) == ""


def test_words_about_something_else_are_no_content() -> None:
    assert fault_of("- Here is my best poem about elephants", "- It has that for you") == (
        "no_content"
    )


def test_a_person_may_be_sorry() -> None:
    assert not is_refusal_text("I'm sorry, the order 4711 was late.")
    assert not is_refusal_text("Ann asked for a summary.")
    assert fault_of("- User: I'm sorry, the train was late [#1]") == ""


def test_a_built_in_summary_quotes_and_is_not_judged() -> None:
    sources = [message(n, "None. Keine. Rien. " * 9) for n in (1, 2)]
    assert validate_summary("## Facts\n- None. Keine.", sources=sources, by_model=False).accepted
    assert validate_summary(VALID_SUMMARY).accepted


@pytest.mark.parametrize("reason", ["no_content", "echo"])
def test_the_model_is_asked_once_more(reason: str) -> None:
    assert select_next_rung([Attempt("model", "rejected", (reason,))]) == "model_again"
