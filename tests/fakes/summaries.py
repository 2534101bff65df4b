"""The summaries of the fake model: a good one, and several bad ones.

`reply=summary` copies the beginning of each message of the transcript as a bullet with its number.
The bad ones are `summary_short` (one section only), `summary_echo` (the transcript itself),
`summary_french` and `summary_link` (an address that is not in the transcript).
"""

import re
from typing import Any

from tests.fakes.scripting import text_of

MESSAGE = re.compile(r'<message number="(\d+)"[^>]*>\n(.*?)\n</message>', re.DOTALL)
BULLET = re.compile(r"^- .*\[#\d.*\]$", re.MULTILINE)
MOST = re.compile(r"At most (\d+) tokens")
OTHERS = "\n## Preferences\n## Decisions\n## Open items\n## Done items"
FRENCH = "Nous avons parlé de la commande et du client, qui est très content de la réponse. "


def summary_of(kind: str, body: dict[str, Any]) -> str:
    """The answer to a request for a summary."""
    texts = [text_of(message.get("content")) for message in body.get("messages", [])]
    asked = "\n".join(texts)
    if kind == "summary_echo":
        return texts[-1] if texts else ""
    bullets = [*BULLET.findall(asked), *(said(*found) for found in MESSAGE.findall(asked))]
    limit = MOST.search(asked)
    # Four characters a token is usual; two is safe for every script.
    room = min(2 * int(limit[1]) if limit else 2_000, len(asked) // 3)
    while bullets and sum(map(len, bullets)) > room:
        bullets = bullets[1:]
    facts = "## Facts\n" + "\n".join(bullets or ["- Nothing to keep."])
    if kind == "summary_short":
        return facts
    if kind == "summary_french":
        return f"## Facts\n- {FRENCH * 3}{OTHERS}"
    if kind == "summary_link":
        return f"{facts}\n- See https://nobody.example/said/this{OTHERS}"
    return facts + OTHERS


def said(number: str, text: str) -> str:
    """The beginning of a message as a bullet."""
    return f"- {' '.join(text.split())[:80]} [#{number}]"
