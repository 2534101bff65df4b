"""Refusals with their details: English in rows and logs, the reader's language elsewhere."""

from collections.abc import Callable

import pytest
from django.core.exceptions import ValidationError
from django.db import OperationalError
from django.utils import translation
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, gettext_noop, ngettext_lazy
from django_stubs_ext import StrOrPromise
from rest_framework import exceptions

from chats.api.chats.chat_inputs import NewChat
from chats.api.core import strict_json
from chats.api.core.errors import CsrfFailed, convert_validation_error
from chats.api.core.inputs import FIELD_UNKNOWN
from chats.compaction.people.summary_permissions import WORDS, NotAllowedByPolicy
from chats.exchange.words import WORDS as LOSSES
from chats.exchange.words import describe_loss
from chats.ground import csrf, databases, turn_notices
from chats.ground.refusals import Refusal
from chats.people import invitations
from chats.providers.account_refusals import ServerRefused
from chats.providers.address import AddressRefused, check_base_url
from chats.providers.base import ErrorCode, ProviderError
from chats.record.holds import CHAT_HIDDEN, UnderHold
from chats.turns.state_extraction import SENTENCE
from tests.chats.marked_language import LANGUAGE, mark, render_marked

pytestmark = pytest.mark.usefixtures("marked_catalogue")


class NotChanged(Refusal):
    """A refusal with a detail."""

    sentence = gettext_noop("Nothing was changed: {reason}")


def both(refusal: Refusal) -> tuple[str, str]:
    """Return the stored sentence and the one that a reader of Chinese gets."""
    with translation.override(LANGUAGE):
        return refusal.sentence, refusal.localized


def check_both(refusal: Refusal) -> None:
    """Check that the row is English, and that the reader's text has every part translated once."""
    english, shown = both(refusal)
    assert english == refusal.full.template.format(**refusal.details)
    assert "「" not in english
    assert shown == render_marked(refusal.full)


def refused(call: Callable[[], object]) -> Refusal:
    """Return the refusal that a call raises, which may happen under any language."""
    with translation.override(LANGUAGE), pytest.raises(Refusal) as caught:
        call()
    return caught.value


def test_one_refusal_has_its_sentence_in_both_languages() -> None:
    refusal = NotChanged(reason=gettext_lazy("the list is full"))

    assert both(refusal) == (
        "Nothing was changed: the list is full",
        "「Nothing was changed: 「the list is full」」",
    )
    assert str(refusal) == "Nothing was changed: the list is full"
    assert refusal.localized == refusal.sentence


def test_details_with_values_follow_the_language_too() -> None:
    limit = format_lazy(gettext_lazy("it has more than {limit} entries"), limit=7)
    count = format_lazy(ngettext_lazy("{n} chat", "{n} chats", "n"), n=2)

    assert both(NotChanged(reason=limit)) == (
        "Nothing was changed: it has more than 7 entries",
        "「Nothing was changed: 「it has more than 7 entries」」",
    )
    assert both(NotChanged(reason=count)) == (
        "Nothing was changed: 2 chats",
        "「Nothing was changed: 「2 chat」」",
    )


def test_a_detail_without_a_translation_stays_as_it_is() -> None:
    assert both(NotChanged(reason="ENOSPC")) == (
        "Nothing was changed: ENOSPC",
        "「Nothing was changed: ENOSPC」",
    )


def test_the_body_of_an_error_is_in_the_language_of_the_reader() -> None:
    refusal = NotChanged(reason=gettext_lazy("the list is full"))

    with translation.override(LANGUAGE):
        body = refusal.body(request_id="r")

    assert body["error"]["message"] == "「Nothing was changed: 「the list is full」」"
    assert body["error"]["code"] == "refused"


def test_a_sentence_of_a_right_and_of_a_hold() -> None:
    check_both(NotAllowedByPolicy(policy="P", action=WORDS["edit"]))
    check_both(UnderHold(meanwhile=CHAT_HIDDEN))
    check_both(UnderHold())
    assert mark(str(CHAT_HIDDEN)) in both(UnderHold(meanwhile=CHAT_HIDDEN))[1]


def test_a_refused_address() -> None:
    scheme = refused(lambda: check_base_url("ftp://models.example", allowed_private=()))
    private = refused(lambda: check_base_url("https://10.0.0.1:8000", allowed_private=()))

    for refusal in (scheme, private):
        assert isinstance(refusal, AddressRefused)
        check_both(refusal)
    assert (scheme.details, private.details) == ({}, {"server": "10.0.0.1:8000"})


def test_a_server_that_cannot_be_connected() -> None:
    failures: list[tuple[ErrorCode, int | None]] = [
        ("provider_auth", 401),
        ("provider_timeout", None),
        ("content_filtered", None),
    ]
    for code, status in failures:
        refusal = ServerRefused(ProviderError(code, status=status))
        assert refusal.code == code
        check_both(refusal)
        # The sentence is translated itself, not only its frame.
        assert "「「" in both(refusal)[1]
        assert str(status or "") in both(refusal)[0]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"a": 1, "a": 2}', strict_json.KEY_TWICE),
        (b"[" * 40 + b"]" * 40, strict_json.NOT_AN_OBJECT),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", strict_json.TOO_DEEP),
        (b"{", "1"),
    ],
    ids=["a key twice", "a list", "41 levels", "cut off"],
)
def test_an_unreadable_body(body: bytes, problem: StrOrPromise) -> None:
    refusal = refused(lambda: strict_json.parse_json_object(body))

    assert isinstance(refusal, strict_json.InvalidJSON)
    assert str(problem) in str(refusal.details["problem"])
    english, shown = both(refusal)
    assert "「" not in english
    # The frame and the problem, each translated once around its values.
    assert (shown.count("「"), shown.replace("「", "").replace("」", "")) == (2, english)


def test_a_field_that_does_not_exist_is_named_in_the_language_of_the_reader() -> None:
    with translation.override(LANGUAGE), pytest.raises(exceptions.ValidationError) as caught:
        NewChat.read({"colour": "red"})

    with translation.override(LANGUAGE):
        refusal = convert_validation_error(caught.value)
        assert (refusal.code, refusal.param) == ("unknown_field", "colour")
        assert mark(FIELD_UNKNOWN) in refusal.localized


def test_why_the_database_cannot_be_reached() -> None:
    refusal = databases.build_database_refusal(OperationalError("connection refused"))

    assert str(refusal.details["cause"]) == databases.CAUSES["refused"]
    check_both(refusal)


def test_why_a_browser_was_refused() -> None:
    no_referer = csrf.explain_csrf_failure("Referer checking failed - no Referer.")

    check_both(CsrfFailed(no_referer))
    assert mark(str(no_referer)) in both(CsrfFailed(no_referer))[1]
    check_both(CsrfFailed())
    assert CsrfFailed().full.template == CsrfFailed.sentence


def test_messages_of_a_validation_are_read_in_the_language_of_the_reader() -> None:
    words = invitations.lazy_words(ValidationError([gettext_lazy("the list is full")]))

    english, shown = both(invitations.InvitationRefused(reason=words))
    assert (english, shown) == ("the list is full", mark(mark(english)))


def test_words_for_codes_are_in_the_language_of_the_reader() -> None:
    sentence = LOSSES["system_left_out"]
    assert describe_loss("system_left_out:tool") == sentence
    with translation.override(LANGUAGE):
        assert describe_loss("system_left_out:tool") == mark(sentence)
        assert describe_loss("unheard_of:3") == "unheard_of:3"


def test_notices_of_the_live_bus_are_translated_for_each_reader() -> None:
    waiting = turn_notices.WAITING.format(until="10:11:12")

    assert turn_notices.localize_notice(waiting) == waiting
    with translation.override(LANGUAGE):
        assert turn_notices.localize_notice(waiting) == mark(waiting)
        assert turn_notices.localize_notice(SENTENCE) == mark(SENTENCE)
        assert turn_notices.localize_notice("") == ""
