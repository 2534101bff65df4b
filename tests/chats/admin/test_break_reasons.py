"""Reasons of broken chains are in the reader's language."""

import uuid

import pytest
from django.utils import translation

from chats.admin.audit.break_reasons import RENAMED, TEMPLATES, localize_break_reason
from chats.record import commitment_check, message_commitments

PK = uuid.UUID("0b7f8f6e-0000-4000-8000-000000000001")


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_reason_with_an_id_or_a_number_is_translated(template: str) -> None:
    value = "12" if "row" in template else str(PK)
    reason = template.format(value)

    with translation.override("zh-hans"):
        assert localize_break_reason(reason) != reason
        assert ("{}" not in template) or value in localize_break_reason(reason)
    with translation.override("en"):
        assert localize_break_reason(reason) == reason


@pytest.mark.parametrize("stored", RENAMED)
def test_a_stored_reason_of_an_earlier_version_is_shown_as_the_current_one(stored: str) -> None:
    assert RENAMED[stored] in TEMPLATES
    assert localize_break_reason(stored) == RENAMED[stored]
    with translation.override("zh-hans"):
        shown = localize_break_reason(stored)
        assert shown == localize_break_reason(RENAMED[stored]) != RENAMED[stored]


def test_the_reasons_of_the_checks_have_templates() -> None:
    reasons = [
        commitment_check.CALL_WITHOUT_ENTRY.format(pk=PK),
        commitment_check.SUMMARY_WITHOUT_ENTRY.format(pk=PK),
        message_commitments.MESSAGE_WITHOUT_ENTRY.format(pk=PK),
        message_commitments.ENTRY_CHANGED,
        f"message {PK} {message_commitments.MOVED}",
        f"message {PK} {message_commitments.UNSAID}",
        *(
            f"receipt {PK} {reason}"
            for reason in (
                commitment_check.ABSENT,
                commitment_check.CHANGED,
                commitment_check.UNSAID,
                commitment_check.OTHER_COMMITMENT,
                commitment_check.OTHER_BODY,
            )
        ),
        *(
            f"summary {PK} {reason}"
            for reason in (commitment_check.OTHER_BODIES, commitment_check.OTHER_CALLS)
        ),
    ]

    with translation.override("zh-hans"):
        assert [one for one in reasons if localize_break_reason(one) == one] == []
    assert localize_break_reason("an unknown reason") == "an unknown reason"
    assert localize_break_reason("") == ""
