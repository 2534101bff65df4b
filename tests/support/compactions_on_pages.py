"""Summaries and drafts that chat pages show, and policies that lead to them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from chats.models import Branch, Chat, Compaction, Turn
from contextpolicy.models import PolicyVersion
from tests.support.chat_pages import HTMX, get_chat_url

Talk = Callable[..., Turn]
Fold = Callable[..., Compaction]
Policy = Callable[..., None]
SUMMARY_TEXT = "## Facts\n- Eva has ticket 48213 [#1]\n- She is nice"


def get_branch(chat: Chat) -> Branch:
    """Reload the chat's branch."""
    return Branch.objects.get(chat=chat)


def press_marker_button(
    client: Client, chat: Chat, row: Compaction, action: str, **data: str
) -> Any:
    """Press a button of the marker as a page with scripts does."""
    return client.post(get_chat_url(chat, f"compactions/{row.pk}/{action}"), data, headers=HTMX)


def build_preparing_fields(**fields: Any) -> dict[str, Any]:
    """A summary that is being written."""
    lease = {"lease_token": "x", "lease_until": timezone.now() + timedelta(minutes=2)}
    return {"status": "preparing", "text": "", "published_at": None, **lease, **fields}


def change_policy_values(**values: Any) -> None:
    """Let the policy of the test say something else from now on."""
    version = PolicyVersion.objects.get()
    PolicyVersion.objects.filter(pk=version.pk).update(values={**version.values, **values})
