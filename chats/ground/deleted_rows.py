"""Recognises errors about a row that another request deleted during this one.

A view loads a row, and a domain function changes it later. Views need not handle a row that is gone
by then: the transaction is rolled back, and the request gets this refusal.
"""

import re

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, IntegrityError
from django.utils.translation import gettext_noop

from chats.ground.refusals import NotFound

# PostgreSQL's code for a reference to a row that does not exist, and SQLite's message.
_NO_REFERENCED_ROW = "23503"
# PostgreSQL uses this code also for a row that others still refer to, with another message.
_NEW_REFERENCE = re.compile(r"insert or update on table", re.IGNORECASE)
_REFERENCE = re.compile(r"foreign key constraint", re.IGNORECASE)
# Django's message for a row that was read and then not found by its update.
_NOT_SAVED = re.compile(r"did not affect any rows")


class DeletedMeanwhile(NotFound):
    """The object, or one that it refers to, was deleted at the same moment."""

    sentence = gettext_noop(
        "This was deleted at the same moment, so nothing was changed. Reload the page. If it is "
        "still there, try again."
    )


def is_deleted_row(error: BaseException) -> bool:
    """Return True if a row that was read or referred to no longer exists."""
    if isinstance(error, ObjectDoesNotExist):
        # A missing related object is a fault: nothing was read before.
        return not isinstance(error, AttributeError)
    if isinstance(error, IntegrityError):
        state = getattr(error.__cause__, "sqlstate", None)
        if state is not None:
            return state == _NO_REFERENCED_ROW and bool(_NEW_REFERENCE.search(str(error)))
        return bool(_REFERENCE.search(str(error)))
    return isinstance(error, DatabaseError) and bool(_NOT_SAVED.search(str(error)))
