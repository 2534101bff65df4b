"""Detects auxiliary requests about a conversation, such as one for its title.

Clients send them with the session id of the conversation. They get a separate chat, so that the
conversation keeps its title and its branch.
"""

import re
from collections.abc import Sequence
from typing import Any

from chats.gateway.matching.conversation import Conversation

_ABOUT = r"(?:conversation|chat|session|thread|discussion|dialogue|message|query|prompt)"
_ABOUT_CJK = "(?:对话|会话|聊天|對話|聊天記錄|会話|チャット|대화)"
_TITLE_CJK = "(?:标题|標題|タイトル|제목)"
_ASKS = re.compile(
    rf"\btitle generator\b"
    rf"|\b(?:generate|create|write|suggest|come up with|produce|provide|give|extract|propose)\b"
    rf"[^.\n]{{0,80}}\b(?:title|tags|follow-?up questions)\b[^.\n]{{0,80}}\b{_ABOUT}\b"
    rf"|\bisNewTopic\b"
    rf"|\b(?:summari[sz]e|title|describe)\b[^.\n]{{0,40}}\b{_ABOUT}\b[^.\n]{{0,40}}"
    rf"\b(?:words?|characters?)\b"
    rf"|{_ABOUT_CJK}[^。\n]{{0,80}}{_TITLE_CJK}|{_TITLE_CJK}[^。\n]{{0,80}}{_ABOUT_CJK}",
    re.IGNORECASE,
)
# Number of characters of a text that are checked.
MOST_READ = 2_000


def is_side_call(said: Conversation, *, tools: Sequence[Any] | None) -> bool:
    """Return True if a request asks for a title, tags or the like.

    Such a request has no reply and no tools, and its system text or first message says so.
    """
    if tools or any(item.role == "assistant" for item in said.items):
        return False
    first = next((item.text for item in said.items if item.role == "user"), "")
    return any(_ASKS.search(text[:MOST_READ]) for text in (*said.system, first))
