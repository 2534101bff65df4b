"""Reading a user's chat requires a meaningful reason."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.models import Chat
from chats.record import audit_access
from contextpolicy.models import AuditEvent


@pytest.mark.parametrize(
    "reason",
    ["\u200b" * 20, "." * 20, "…" * 12, "\u3164" * 20, "-- -- -- -- --", "a" * 20, "1 1 1 1 1 1 1"],
    ids=["zero width", "dots", "ellipses", "fillers", "dashes", "one letter", "one digit"],
)
def test_a_reason_without_words_opens_nothing(
    reason: str, chat: Chat, bob: User, now: datetime
) -> None:
    actor = f"user:{bob.pk}"
    with pytest.raises(audit_access.ReasonNeeded):
        audit_access.open_reading(chat_id=chat.pk, actor=actor, reason=reason, now=now)
    assert not AuditEvent.objects.filter(type="content.opened").exists()
    with pytest.raises(audit_access.ReadingNotOpen):
        audit_access.require_open(chat_id=chat.pk, actor=actor, now=now)


@pytest.mark.parametrize(
    "reason",
    [
        "Case 2026-118",
        "Beschwerde über Antworten",
        "訴訟保全のための確認作業です",
        "Жалоба клиента № 7",
    ],
)
def test_a_reason_in_any_script_opens_it(reason: str, chat: Chat, bob: User, now: datetime) -> None:
    assert audit_access.open_reading(
        chat_id=chat.pk, actor=f"user:{bob.pk}", reason=reason, now=now
    )
