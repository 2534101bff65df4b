"""Files of exports and imports: build them, and read responses."""

import hashlib
import io
import json
import zipfile
from typing import Any

from chats.models import Chat
from chats.record import history
from tests.chats.api.programs import Program
from tests.support.streamed_responses import read_content

PNG = b"\x89PNG\r\n\x1a\n the picture"
PNG_HASH = hashlib.sha256(PNG).hexdigest()


def read_body(answer: Any) -> bytes:
    """Return the bytes of a response, streamed or not."""
    assert answer.status_code == 200, answer.content
    return read_content(answer)


def export_chat(program: Program, chat_id: object, **query: str) -> bytes:
    """Export a chat as a file."""
    return read_body(program.get(f"chats/{chat_id}/export", **query))


def build_ui_message(
    own: str, text: str, role: str = "user", **metadata: object
) -> dict[str, object]:
    """Return a UI message."""
    parts = [{"type": "text", "text": text}]
    return {"id": own, "role": role, "parts": parts, "metadata": {"kind": "normal", **metadata}}


def join_json_lines(*values: object) -> bytes:
    """Return the values as JSON lines."""
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def zip_entries(**entries: bytes) -> bytes:
    """Return an archive. `__` stands for a slash, `_dot_` for a dot."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return held.getvalue()


def export_account(program: Program, form: str = "ui") -> bytes:
    """Return the archive of a user."""
    return read_content(program.get("export", form=form))


def replace_entries(archive: bytes, *, account: Any = None, **entries: bytes | None) -> bytes:
    """Replace entries of an archive. None removes one. `__` stands for a slash."""
    changed = {name.replace("__", "/"): data for name, data in entries.items()}
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(held, "w") as new:
        told = json.loads(old.read("account.json"))
        changed["account.json"] = json.dumps(account(told) if account else told).encode()
        for name in [*old.namelist(), *(set(changed) - set(old.namelist()))]:
            data = changed.get(name, old.read(name) if name in old.namelist() else None)
            if data is not None:
                new.writestr(name, data)
    return held.getvalue()


def build_chatgpt_node(
    own: str,
    parent: str | None,
    children: list[str],
    role: str = "",
    *texts: object,
    **more: Any,
) -> dict[str, Any]:
    """Return a node of ChatGPT's tree."""
    message = None
    if role:
        content = more.pop("content", {"content_type": "text", "parts": list(texts)})
        message = {
            "id": own,
            "author": {"role": role},
            "create_time": 1_700_000_000.5,
            "content": content,
            "recipient": more.pop("recipient", "all"),
            "metadata": more,
        }
    return {"id": own, "message": message, "parent": parent, "children": children}


def list_path_texts(chat_id: str) -> list[tuple[str, str]]:
    """Return roles and texts of the active path of a chat."""
    chat = Chat.objects.get(pk=chat_id)
    branch = chat.active_branch
    assert branch is not None
    rows = history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by("seq")
    return [(row.role, row.text) for row in rows]


def join_ui_messages(*said: tuple[str, str, str]) -> str:
    """UI messages, one per line."""
    return "".join(
        json.dumps({"id": own, "role": role, "parts": [{"type": "text", "text": text}]}) + "\n"
        for own, role, text in said
    )


def build_pictured_chat(*pointers: str) -> bytes:
    """Return an export of ChatGPT with a chat whose message has images."""
    parts = ["Look", *({"asset_pointer": pointer} for pointer in pointers)]
    content = {"content_type": "multimodal_text", "parts": parts}
    nodes = (
        build_chatgpt_node("u1", None, ["a1"], "user", content=content),
        build_chatgpt_node("a1", "u1", [], "assistant", "Nice."),
    )
    mapping = {node["id"]: node for node in nodes}
    chat = {"title": "C", "conversation_id": "g", "current_node": "a1", "mapping": mapping}
    return json.dumps([chat]).encode()
