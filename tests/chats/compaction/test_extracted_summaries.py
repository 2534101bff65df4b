"""Extractive summaries quote people, not the context report of the demo model."""

from chats.compaction.perform import extract_summary_text, measure_fact_retention
from chats.providers.demo import build_demo_reply
from contextpolicy.engine.messages.messages import Message
from tests.engine.engine_builders import COUNTER, message
from tests.fakes.calls import asked

SAID = (
    "We plan the move to the new office on 14 March 2027.",
    "The lease of the old rooms ends on 31 March 2027; the deposit is 18,400 euros.",
    "Anna Keller leads the move, Tom Berger orders the furniture by 15 January 2027.",
    "Please never call the landlord before 9 a.m.; his number is +47 22 33 44 55.",
    "We decided to keep the old desks and to buy 40 new chairs at 189 euros each.",
)


def conversation() -> list[Message]:
    """A conversation of these user messages, each answered by the demo model."""
    texts = [text for said in SAID for text in (said, build_demo_reply(asked(said)))]
    return [message(seq, text) for seq, text in enumerate(texts, start=1)]


def test_nothing_of_the_demo_model_s_own_account_is_quoted() -> None:
    text = extract_summary_text(conversation(), None, most=400, counter=COUNTER)
    assert "Demo" not in text
    assert "You asked" not in text
    assert "tokens" not in text


def test_what_is_not_quoted_leaves_its_room_to_what_people_said() -> None:
    text = extract_summary_text(conversation(), None, most=400, counter=COUNTER)
    assert [said for said in SAID if said not in text] == []


def test_numbers_of_the_demo_model_s_accounts_are_no_facts_that_a_summary_lost() -> None:
    text = extract_summary_text(conversation(), None, most=400, counter=COUNTER)
    assert not any(measure_fact_retention(conversation(), None, text)["lost"].values())
