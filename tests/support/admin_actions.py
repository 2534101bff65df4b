"""Actions of lists in the administration, and the pages that answer them."""

import re
from typing import Any

from django.test import Client

from tests.contextpolicy.pages import Page, message_codes

COMPACTION_LIST = "/admin/chats/compaction/"


class ActionPage(Page):
    """The page after an action: the action it asks about, and the codes of its messages."""

    def __init__(self, answer: Any) -> None:
        html = answer.content.decode()
        super().__init__(html)
        self.codes = message_codes(answer)
        self.asks = re.findall(r'data-note="consequence" data-reason="([^"]+)">[^<]+<', html)


def run_list_action(
    client: Client, action: str, *keys: object, where: str = COMPACTION_LIST, **more: str
) -> ActionPage:
    """Run an action on rows and return the next page."""
    chosen = {"action": action, "_selected_action": [str(key) for key in keys]}
    answer = client.post(where, {**chosen, **more}, follow=True)
    assert answer.status_code == 200
    return ActionPage(answer)


def list_actions(client: Client, where: str = COMPACTION_LIST) -> set[str]:
    """Return the actions of a list."""
    form = client.get(where).context["action_form"]
    if form is None:
        return set()
    return {name for name, _ in form.fields["action"].choices if name}
