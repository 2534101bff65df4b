"""Tells the files of other products apart."""

import json
from collections.abc import Callable, Mapping
from typing import IO, Any

from chats.exchange import assistants, bounds, sessions, trees
from chats.exchange.building import Unreadable
from chats.exchange.drafts import ChatDraft, ImportRefused
from chats.exchange.jsonstream import is_list, items, shown

Found = ChatDraft | Unreadable
KNOWN = (
    "Import UI messages (JSON or JSONL), a bundle, an export of ChatGPT, Claude, DeepSeek, Grok,"
    " Gemini (Takeout), Open WebUI or LibreChat, a session of Claude Code, Codex, opencode, pi,"
    " aider or llama.cpp, or plain messages with role and content."
)
# How a chat of a product is read.
READERS: Mapping[str, Callable[[Mapping[str, Any]], Found]] = {
    "chatgpt": trees.chatgpt,
    "deepseek": assistants.deepseek,
    "claude": trees.claude,
    "open_webui": trees.open_webui,
    "librechat": trees.librechat,
    "grok": assistants.grok,
    "opencode": sessions.opencode,
    "llama_app": sessions.llama_conversation,
}
# Nodes of a tree that are looked at to tell whose it is.
LOOKED_AT = 20


def unknown(what: str) -> ImportRefused:
    """Return the refusal of a file in no known form; `what` names what it is."""
    return ImportRefused("import_unknown_form", f"The form of the file is unknown: {what}. {KNOWN}")


def product_of(chat: object) -> str:
    """Return the product that wrote a chat; empty: it is not known."""
    if not isinstance(chat, Mapping):
        return ""
    if "mapping" in chat:
        return product_of_tree(chat)
    return next((product for product, is_of in SIGNS.items() if is_of(chat)), "")


# How the chats of the other products are told apart.
SIGNS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "claude": lambda chat: "chat_messages" in chat,
    "open_webui": lambda chat: isinstance(chat.get("chat"), Mapping),
    "librechat": lambda chat: "conversationId" in chat and "messages" in chat,
    "grok": lambda chat: "conversation" in chat and is_list(chat.get("responses")),
    "opencode": lambda chat: isinstance(chat.get("info"), Mapping) and "messages" in chat,
    "llama_app": lambda chat: isinstance(chat.get("conv"), Mapping) and "messages" in chat,
}


def product_of_tree(chat: Mapping[str, Any]) -> str:
    """Return the product that wrote a tree of nodes: ChatGPT or DeepSeek."""
    mapping = chat["mapping"]
    if not isinstance(mapping, Mapping):
        return "chatgpt"
    has_messages = False
    for own in list(mapping)[:LOOKED_AT]:
        node = mapping[own]
        message = node.get("message") if isinstance(node, Mapping) else None
        if isinstance(message, Mapping):
            has_messages = True
            if "fragments" in message or ("inserted_at" in message and "author" not in message):
                return "deepseek"
            if "author" in message:
                return "chatgpt"
    return "" if has_messages else "chatgpt"


def list_form(first: object) -> str:
    """Return the form of a list whose values are no chats: messages or activities; or empty."""
    if not isinstance(first, Mapping):
        return ""
    if "role" in first and is_list(first.get("parts")):
        return "ui"
    if "role" in first and "content" in first:
        return "plain"
    return "gemini" if assistants.is_of_gemini(first) else ""


def body_messages(document: object) -> object:
    """Return the messages of a request body, as `useChat` and programs send them; None: no body."""
    if isinstance(document, Mapping) and (listed := items(document.get("messages"))):
        return listed if list_form(listed[0]) in ("ui", "plain") else None
    return None


def is_one_document(file: IO[bytes]) -> bool:
    """Return True if a file is JSON that has no message on each line."""
    head = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    file.seek(0)
    if not head.startswith(b"{"):
        return head.startswith(b"[")
    first = first_line(file)
    if not first or product_of(first) or body_messages(first) is not None:
        return True
    return not (session_form(first) or is_message(first))


def is_message(first: Mapping[str, Any]) -> bool:
    """Return True if a line may be a UI message."""
    return "id" in first or "parts" in first or "role" in first


def first_line(file: IO[bytes]) -> Mapping[str, Any]:
    """Return the object of the first line; empty where it is none. Raises `ImportRefused`."""
    line = b"\n"
    while line and not line.strip():
        line = file.readline(bounds.LINE_BYTES + 1)
    file.seek(0)
    if len(line) > bounds.LINE_BYTES:
        return {}
    bounds.check_shape(line, place="line 1")
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def session_form(first: Mapping[str, Any]) -> str:
    """Return the program whose session begins with this line; empty: it is none.

    Raises `ImportRefused` for the session of a program that is not known here.
    """
    if "payload" in first:
        return "codex"
    if "sessionId" in first or "isSidechain" in first or first.get("type") == "summary":
        return "claude_code"
    if first.get("type") == "session":
        harness = first.get("harness")
        if harness == "llama.app":
            return "llama_app"
        if isinstance(harness, str) and harness not in ("", "pi"):
            raise unknown(f"it is a session of {harness[:60]}")
        return "pi"
    if "role" in first and "content" in first and "parts" not in first:
        return "plain"
    return ""


def session(form: str, lines: sessions.Lines) -> list[Found]:
    """Read a session. Raises `ImportRefused`."""
    if form == "llama_app":
        return list(sessions.llama_app(lines))
    readers = {
        "codex": sessions.codex,
        "claude_code": sessions.claude_code,
        "pi": sessions.pi,
        "plain": sessions.plain,
    }
    return [readers[form](lines)]


def other_form(chat: object, *, place: int, form: str) -> Unreadable:
    """Return what is said of a chat that has another form than the first of its file."""
    product = product_of(chat)
    what = f"It is of {product}" if product else f"Its form is unknown ({shown(chat)})"
    return Unreadable(f"Chat {place}", f"{what}, and the file was taken for one of {form}.")
