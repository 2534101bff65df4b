"""Notices about a running turn.

The live bus carries them in English; each reader's stream translates them.
"""

import re

from django.utils.translation import gettext, gettext_noop

WAITING = gettext_noop("The call to the provider failed. Next attempt at {until} UTC.")
CALLING = gettext_noop("Calling the tool {tool} on {server}…")
_CALLING = re.compile(
    re.escape(CALLING).replace(r"\{tool\}", "(?P<tool>.+)").replace(r"\{server\}", "(?P<server>.+)")
)
_WAITING = re.compile(re.escape(WAITING).replace(r"\{until\}", "(?P<until>.+)"))


def localize_notice(notice: str) -> str:
    """Return a notice from the live bus in the active language."""
    if found := _WAITING.fullmatch(notice):
        return gettext(WAITING).format(until=found["until"])
    if found := _CALLING.fullmatch(notice):
        return gettext(CALLING).format(**found.groupdict())
    return gettext(notice)
