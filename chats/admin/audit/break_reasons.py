"""Localized reasons for broken chains. Rows, commands and logs stay English."""

import re

from django.utils.translation import gettext, gettext_noop

# Ids and numbers in a reason. `{}` in its template stands for each of them.
VALUES = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9]+\b")
TEMPLATES = (
    gettext_noop("row {} is missing"),
    gettext_noop("the row does not continue the previous row"),
    gettext_noop("the content of the row was changed"),
    gettext_noop("the stored length of the audit log is missing"),
    gettext_noop("later rows are missing: {} rows were written"),
    gettext_noop("the stored length of the audit log does not include this row"),
    gettext_noop("the stored hash of the last row is different"),
    gettext_noop("the chat is missing, and no audit log entry records its erasure"),
    gettext_noop("no audit log entry has the commitment to the call of receipt {}"),
    gettext_noop("no audit log entry has the commitments to the calls of {}"),
    gettext_noop("no audit log entry mentions summary {}"),
    gettext_noop("receipt {} is missing"),
    gettext_noop("receipt {} was changed"),
    gettext_noop("receipt {} is marked as erased without an audit log entry"),
    gettext_noop("receipt {} has a different commitment from this entry"),
    gettext_noop("receipt {} has a different body hash from this entry"),
    gettext_noop("summary {} is missing"),
    gettext_noop("summary {} was changed"),
    gettext_noop("summary {} is marked as erased without an audit log entry"),
    gettext_noop("summary {} has different body hashes from this entry"),
    gettext_noop("summary {} has different calls from this entry"),
    gettext_noop("the prompt of receipt {} differs from its stored messages"),
    gettext_noop(
        "the prompt of receipt {} had messages that are missing or erased without an entry in the "
        "audit log"
    ),
    gettext_noop("message {} is missing"),
    gettext_noop("message {} was changed"),
    gettext_noop("message {} was changed before this entry"),
    gettext_noop("message {} is marked as erased without an audit log entry"),
    gettext_noop("message {} was moved to another position"),
    gettext_noop("no audit log entry names message {}"),
    gettext_noop("the messages of this entry were changed, added or removed"),
    gettext_noop("an image of message {} was changed"),
)

# Reasons in the results of earlier verifications, with the templates that replaced them.
RENAMED = {
    "the head row is missing": "the stored length of the audit log is missing",
    "the head row does not count this row": (
        "the stored length of the audit log does not include this row"
    ),
    "the head row names a different last row": "the stored hash of the last row is different",
}


def localize_break_reason(reason: str) -> str:
    """Return the reason for a broken chain in the active language. Unknown reasons stay English."""
    if not reason:
        return ""
    reason = RENAMED.get(reason, reason)
    values = VALUES.findall(reason)
    template = VALUES.sub("{}", reason)
    return gettext(template).format(*values) if template in TEMPLATES else gettext(reason)
