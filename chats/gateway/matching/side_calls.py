"""Detects auxiliary requests about a conversation, such as one for its title.

Clients send them with the session id of the conversation. They get a separate chat, so that the
conversation keeps its title and its branch.
"""

import re
from collections.abc import Sequence
from typing import Any

from chats.gateway.matching.conversation import Conversation

# The prefix of the rooms of side calls.
SIDE = "side:"
_ABOUT = r"(?:conversation|chat|session|thread|discussion|dialogue|message|query|prompt)s?"
_THIS = r"(?:this|the|our)(?: following| above)? (?:conversation|chat|session|thread|discussion)"
_ABOUT_CJK = "(?:对话|会话|聊天|對話|聊天記錄|会話|チャット|대화)"
_TITLE_CJK = "(?:标题|標題|タイトル|제목)"
# German, French, Spanish, Portuguese, Italian, Russian, Dutch, Polish, Swedish, Czech, Ukrainian
_MAKE_ABROAD = (
    r"(?:(?:erstell|generier|schreib|formulier|fass|gib|g[ée]n[èée]r|cr[ée]e|donne|propose|r[ée]sum"
    r"|escrib|redact|gere|crie|escreva|scrivi|создай|сгенерируй|придумай|напиши|genereer|maak|geef"
    r"|wygeneruj|stwórz|napisz|skapa|skriv|generera|vytvoř|napiš|створи|згенеруй)\w*"
    r"|d[áa](?:le|me)?|dai)"
)
_TITLE_ABROAD = r"(?:titel|titre|t[íi]tulo|titolo|заголовок|название|назву|tytuł|název|namen)"
_ABOUT_ABROAD = (
    r"(?:gespräch|unterhaltung|konversation|chat(?!bot|gpt)|conversation|discussion"
    r"|conversaci[óo]n|charla|conversa|чат|диалог|бесед|разговор|переписк|gesprek|rozmow|rozhovor"
    r"|konverzac|samtal|розмов)"
)
_THIS_ABROAD = (
    r"(?:diese[mnrs]?|dit|cette|cet|esta|este|essa|esse|questa|эту|этот|этой|tę|tej|den här"
    r"|tuto|tento|цю|цієї)"
)
# Languages with the verb at the end, or in which articles are part of the words.
_THIS_FREE = (
    r"(?:\bbu (?:konuşma|sohbet)|هذه المحادثة|لهذه المحادثة|इस (?:बातचीत|चैट)"
    r"|(?:cuộc trò chuyện|hội thoại|đoạn chat) này)"
)
_TITLE_FREE = "(?:başlık|عنوان|शीर्षक|tiêu đề)"
_ASKS = re.compile(
    rf"\btitle (?:generator|assistant)\b|\b{_ABOUT} titles?\b[^.\n]{{0,40}}\bassistant\b"
    rf"|\b(?:generate|create|write|suggest|come up with|produce|provide|give|extract|propose|make"
    rf"|(?:reply|respond|answer)[^.\n]{{0,20}} with|output|return)\b"
    rf"[^.\n]{{0,80}}\b(?:title|tags|follow-?up questions)\b[^.\n]{{0,80}}\b{_ABOUT}\b"
    rf"|\btitle for {_THIS}\b"
    rf"|\b(?:give|suggest|choose|find) {_THIS} an?\b[^.\n]{{0,20}}\b(?:name|title)\b"
    rf"|\bdescription of {_THIS}\b[^.\n]{{0,40}}\bwords?\b"
    rf"|\bsummari[sz]e in an? [\w -]{{1,20}}\bwords? title\b"
    rf"|\btitle for the (?:text|message)s? (?:that )?the user (?:sends|sent|wrote)\b"
    rf"|\bisNewTopic\b"
    rf"|\b(?:summari[sz]e|title|describe)\b[^.\n]{{0,40}}\b{_ABOUT}\b[^.\n]{{0,40}}"
    rf"\b(?:words?|characters?)\b"
    rf"|\b(?:suggest|choose|find|give|generate|create|write|propose)\b[^.\n]{{0,40}}"
    rf"\b(?:conversation|chat|session|thread) (?:name|title)s?\b"
    rf"|\A\s*(?:please )?(?:generate|create|write|suggest|give|produce|make|output|return)\b"
    rf"[^.\n]{{0,30}}\btitle (?:of|with|in|using|under|up to|at most|that has)\b"
    rf"[^.\n]{{0,30}}\bwords?\b(?! (?:for|about|to)\b)"
    # The tasks of Open WebUI, such as search queries for a chat.
    rf"|\A\s*### Task:\n(?=(?s:.*?)<chat_history>)"
    rf"|\A\s*### Task:\n(?=[^\n]{{0,200}}\b(?:title|tags|quer(?:y|ies)|follow-?ups?|emoji)\b)"
    rf"(?=(?s:.*?)\n### Guidelines)"
    rf"|{_ABOUT_CJK}[^。\n]{{0,80}}{_TITLE_CJK}|{_TITLE_CJK}[^。\n]{{0,80}}{_ABOUT_CJK}"
    rf"|\b{_MAKE_ABROAD}\b[^.\n]{{0,60}}\b{_TITLE_ABROAD}\b[^.\n]{{0,60}}\b{_ABOUT_ABROAD}"
    rf"|\b{_MAKE_ABROAD}\b[^.\n]{{0,10}} {_THIS_ABROAD} {_ABOUT_ABROAD}\w*[^.\n]{{0,40}}"
    rf"\b{_TITLE_ABROAD}\b"
    rf"|{_THIS_FREE}[^.\n]{{0,60}}{_TITLE_FREE}|{_TITLE_FREE}[^.\n]{{0,60}}{_THIS_FREE}"
    rf"|\banaly[sz]e {_THIS} and (?:provide|return|give|extract|output|suggest)\b"
    rf"(?=(?s:.{{0,200}})\btitle\b)"
    rf"|\b(?:headline|subject line|caption|label|name|topic)\b[^.\n]{{0,20}}"
    rf"\b(?:for|of) (?:this|our)(?: chat)? (?:conversation|chat|session|thread|discussion)\b"
    rf"|\b(?:name|label) (?:this|our)(?: chat)? (?:conversation|chat|session|thread)\b",
    re.IGNORECASE,
)
# Number of characters of a text that are checked.
MOST_READ = 2_000


def is_side_call(said: Conversation, *, tools: Sequence[Any] | None) -> bool:
    """Return True if a request asks for a title, tags or the like.

    Such a request has no reply and no tools. Its system text, or its first or last message,
    contains the instruction.
    """
    if tools or any(item.role == "assistant" for item in said.items):
        return False
    asked = [item.text for item in said.items if item.role == "user"]
    return any(_ASKS.search(text[:MOST_READ]) for text in (*said.system, *asked[:1], *asked[-1:]))
