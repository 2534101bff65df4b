"""Detects the file formats of other products."""

import json
from collections.abc import Callable, Mapping
from typing import IO, Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import (
    assistants,
    bounds,
    librechat,
    llama_sessions,
    openwebui,
    sessions,
    trees,
)
from chats.exchange.draft_builder import Unreadable
from chats.exchange.drafts import ChatDraft, ImportRefused
from chats.exchange.jsonstream import describe_object_names, get_list_items, is_json_list
from chats.ground.sentences import Sentence

Found = ChatDraft | Unreadable
KNOWN = gettext_lazy(
    "Supported: UI messages (JSON or JSONL); bundles; exports from ChatGPT, Claude, "
    "DeepSeek, Grok, Gemini (Takeout), Open WebUI and LibreChat; sessions from Claude "
    "Code, Codex, opencode, pi, aider and llama.cpp; plain messages with role and content."
)
# The reader of each product's chats.
READERS: Mapping[str, Callable[[Mapping[str, Any]], Found]] = {
    "chatgpt": trees.parse_chatgpt_chat,
    "deepseek": assistants.parse_deepseek_chat,
    "claude": trees.parse_claude_chat,
    "open_webui": openwebui.parse_openwebui_chat,
    "librechat": librechat.parse_librechat_chat,
    "grok": assistants.parse_grok_chat,
    "opencode": sessions.parse_opencode_session,
    "llama_app": llama_sessions.parse_llama_conversation,
}
# Maximum tree nodes that are checked to recognise the product.
LOOKED_AT = 20


def build_unknown_format_error(what: Promise) -> ImportRefused:
    """Return the error for a file in an unknown format; `what` describes its content."""
    problem = gettext_lazy("Unknown file format: {what}. {known}")
    return ImportRefused("import_unknown_form", Sentence(problem, what=what, known=KNOWN))


def detect_product(chat: object) -> str:
    """Return the product that wrote a chat; empty if unknown."""
    if not isinstance(chat, Mapping):
        return ""
    if "mapping" in chat:
        return detect_tree_product(chat)
    return next((product for product, is_of in SIGNS.items() if is_of(chat)), "")


# Signs by which chats of the other products are recognised.
SIGNS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "claude": lambda chat: "chat_messages" in chat,
    "open_webui": lambda chat: isinstance(chat.get("chat"), Mapping),
    "librechat": lambda chat: librechat.get_librechat_messages(chat) is not None,
    "grok": lambda chat: "conversation" in chat and is_json_list(chat.get("responses")),
    "opencode": lambda chat: isinstance(chat.get("info"), Mapping) and "messages" in chat,
    "llama_app": lambda chat: isinstance(chat.get("conv"), Mapping) and "messages" in chat,
}


def detect_tree_product(chat: Mapping[str, Any]) -> str:
    """Return the product that wrote a tree of nodes: `chatgpt` or `deepseek`.

    Empty for messages in neither format. A tree without messages counts as ChatGPT's.
    """
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


def detect_list_format(first: object) -> str:
    """Return the format of a list of messages or activities; empty for any other list."""
    if not isinstance(first, Mapping):
        return ""
    if "role" in first and is_json_list(first.get("parts")):
        return "ui"
    if "role" in first and "content" in first:
        return "plain"
    return "gemini" if assistants.is_gemini_activity(first) else ""


def find_body_messages(document: object) -> object:
    """Return the messages in a request body of `useChat` or another client, or None."""
    if isinstance(document, Mapping) and (listed := get_list_items(document.get("messages"))):
        return listed if detect_list_format(listed[0]) in ("ui", "plain") else None
    return None


def is_json_document(file: IO[bytes]) -> bool:
    """Return True if a file is a single JSON document, not one message per line."""
    head = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    file.seek(0)
    if not head.startswith(b"{"):
        return head.startswith(b"[")
    first = read_first_line(file)
    if not first or detect_product(first) or find_body_messages(first) is not None:
        return True
    return not (detect_session_format(first) or is_ui_message(first))


def is_ui_message(first: Mapping[str, Any]) -> bool:
    """Return True if a line may be a UI message."""
    return "id" in first or "parts" in first or "role" in first


def read_first_line(file: IO[bytes]) -> Mapping[str, Any]:
    """Return the object in the first line with text.

    Empty if it is too long, has too many levels, or is not an object. Rewinds the file. Raises
    `ImportRefused` for an object with too many values.
    """
    line = b"\n"
    while line and not line.strip():
        line = file.readline(bounds.LINE_BYTES + 1)
    file.seek(0)
    if len(line) > bounds.LINE_BYTES or bounds.measure_json_depth(line) > bounds.DEPTH:
        return {}
    bounds.check_shape(line, place=bounds.describe_line(1))
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def detect_session_format(first: Mapping[str, Any]) -> str:
    """Return the format of the session that begins with this line. Empty if unknown.

    Raises `ImportRefused` for a session of an unknown application.
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
            what = gettext_lazy("it is a session from {program}")
            raise build_unknown_format_error(Sentence(what, program=harness[:60]))
        return "pi"
    if "role" in first and "content" in first and "parts" not in first:
        return "plain"
    return ""


def parse_session(form: str, lines: sessions.Lines) -> list[Found]:
    """Return the chats of a session file of this format. Raises `ImportRefused`."""
    if form == "llama_app":
        return list(llama_sessions.parse_llama_chats(lines))
    readers = {
        "codex": sessions.parse_codex_session,
        "claude_code": sessions.parse_claude_code_session,
        "pi": sessions.parse_pi_session,
        "plain": sessions.parse_plain_messages,
    }
    return [readers[form](lines)]


def build_format_mismatch(chat: object, *, place: int, form: str) -> Unreadable:
    """Return the error for a chat whose format differs from that of the file's first chat."""
    product = detect_product(chat)
    if product:
        sentence = gettext_noop(
            "This chat was exported from {product}, but the file was detected as {form}."
        )
        reason = Sentence(sentence, product=product, form=form)
    else:
        sentence = gettext_noop("Unknown file format ({names}). The file was detected as {form}.")
        reason = Sentence(sentence, names=describe_object_names(chat), form=form)
    return Unreadable(f"Chat {place}", reason)
