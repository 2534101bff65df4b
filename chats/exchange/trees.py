"""Parses the exports of ChatGPT and Claude.

The formats are public: the archives that OpenAI and Anthropic send, described by the readers in
github.com/mohamed-chs/convoviz and github.com/simonw/llm.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from chats.exchange.citations import replace_citation_marks
from chats.exchange.draft_builder import Builder, Unreadable
from chats.exchange.drafts import ChatDraft
from chats.exchange.entry_values import NO_PARENT, extract_result_text, select_texts
from chats.exchange.jsonstream import get_list_items, is_json_list, release_lazy_value
from chats.exchange.tool_results import ResultCollector, split_files
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
)

Found = ChatDraft | Unreadable
# Types of ChatGPT's content that have a `text`: code, its output, and pages from the web.
CHATGPT_TEXTS = frozenset(
    {"code", "execution_output", "tether_quote", "sonic_webpage", "system_error"}
)
# The beginning of the ids of projects.
PROJECT_OF_CHATGPT = "g-p-"
# The reference of ChatGPT to a file before its id.
FILE_OF_CHATGPT = "file-service://"


def parse_chatgpt_chat(chat: Mapping[str, Any]) -> Found:
    """Parse a ChatGPT conversation: a tree of nodes."""
    mapping = chat["mapping"]
    title = chat.get("title")
    if not isinstance(mapping, Mapping):
        return build_unreadable_tree(title)
    builder = Builder()
    for own, parent, message in read_tree_messages(mapping, builder=builder):
        parse_chatgpt_message(own, message, parent=parent, builder=builder)
    source = str(chat.get("conversation_id") or chat.get("id") or "")
    if not source and (created := chat.get("create_time")):
        # The first node has the same id in many chats.
        source = f"{next(iter(mapping), '')}:{created}"
    current = chat.get("current_node")
    release_lazy_value(mapping)
    project = chat.get("conversation_template_id") or chat.get("gizmo_id")
    return builder.draft(
        source=source,
        title=title,
        active=current if isinstance(current, str) else None,
        pinned=chat.get("is_starred"),
        archived=chat.get("is_archived"),
        # Other ids are those of GPTs.
        folder=project if str(project).startswith(PROJECT_OF_CHATGPT) else None,
    )


def build_unreadable_tree(title: object) -> Unreadable:
    """Return the entry for a chat whose `mapping` is not an object."""
    reason = gettext_noop("The chat’s `mapping` is not an object. Export the chat again.")
    return Unreadable(str(title or ""), reason)


def read_tree_messages(
    mapping: Mapping[str, Any], *, builder: Builder
) -> Iterator[tuple[str, str | None, Mapping[str, Any]]]:
    """Yield the id, the parent and the message of each node of a tree.

    Passes the children of each node to the builder. Nodes without a message are skipped.
    """
    for own, node in mapping.items():
        if not isinstance(node, Mapping):
            builder.drop(f"message_dropped:{own[:80]}")
            continue
        builder.names_children(own, node.get("children"))
        parent, message = node.get("parent"), node.get("message")
        parent = parent if isinstance(parent, str) else None
        if isinstance(message, Mapping):
            yield own, parent, message
            continue
        if message is not None:
            builder.drop(f"message_dropped:{own[:80]}")
        builder.skip(own, parent=parent)


def parse_chatgpt_message(
    own: str, message: Mapping[str, Any], *, parent: str | None, builder: Builder
) -> None:
    """Add a message of a ChatGPT conversation to the builder, or skip it if it is hidden."""
    author, about = message.get("author"), message.get("metadata")
    role = author.get("role") if isinstance(author, Mapping) else ""
    hidden = isinstance(about, Mapping) and about.get("is_visually_hidden_from_conversation")
    content = message.get("content")
    content = content if isinstance(content, Mapping) else {}
    if hidden:
        return builder.skip(own, parent=parent)
    references = about.get("content_references") if isinstance(about, Mapping) else None
    parts = [
        link_part_citations(part, references) for part in parse_chatgpt_parts(content, builder)
    ]
    parts += parse_chatgpt_attachments(message, parts=parts, builder=builder)
    texts, files = split_files(parts)
    if role == "tool":
        files += parse_chatgpt_outputs(about, builder)
        return builder.result("", "\n\n".join(texts), own_id=own, parent=parent, files=files)
    if role not in ("user", "assistant"):
        if texts:
            builder.losses.append(f"system_left_out:{str(role)[:40]}")
        return builder.skip(own, parent=parent)
    recipient = message.get("recipient")
    if role == "assistant" and isinstance(recipient, str) and recipient not in ("all", ""):
        parts = [ToolCallPart(own, recipient[:200], "\n\n".join(texts) or "{}")]
    model = about.get("model_slug") if isinstance(about, Mapping) else None
    builder.add(
        own,
        parent=parent,
        role="user" if role == "user" else "assistant",
        parts=parts,
        ts=message.get("create_time"),
        model=model,
    )
    return None


def link_part_citations(part: Part, references: object) -> Part:
    if not isinstance(part, TextPart):
        return part
    return TextPart(replace_citation_marks(part.text, get_list_items(references)))


def parse_chatgpt_parts(content: Mapping[str, Any], builder: Builder) -> list[Part]:
    """Parse the content of a ChatGPT message."""
    kind = content.get("content_type")
    listed = content.get("parts")
    if kind in ("text", "multimodal_text") and is_json_list(listed):
        return [
            part for item in get_list_items(listed) for part in parse_chatgpt_part(item, builder)
        ]
    if kind in CHATGPT_TEXTS:
        return [TextPart(text) for text in builder.texts([content.get("text")])]
    if kind == "tether_browsing_display":
        shown = content.get("result") or content.get("summary")
        return [TextPart(text) for text in builder.texts([shown])]
    if kind == "computer_output" and isinstance(content.get("screenshot"), Mapping):
        return parse_chatgpt_part(content["screenshot"], builder)
    if kind == "thoughts":
        thoughts = content.get("thoughts")
        texts = [
            t.get("content") if isinstance(t, Mapping) else t for t in get_list_items(thoughts)
        ]
        return [ReasoningPart(text) for text in builder.texts(texts)]
    if kind not in ("reasoning_recap", "user_editable_context", "model_editable_context"):
        builder.losses.append(f"content_dropped:{str(kind)[:40]}")
    return []


def parse_chatgpt_part(item: object, builder: Builder) -> list[Part]:
    """Parse one part of a ChatGPT message."""
    if not isinstance(item, Mapping):
        return [TextPart(text) for text in builder.texts([item])]
    if isinstance(item.get("asset_pointer"), str):
        return [refer_to_image(str(item["asset_pointer"]), builder)]
    if "text" not in item:
        builder.losses.append(f"content_dropped:{str(item.get('content_type'))[:40]}")
    return [TextPart(text) for text in builder.texts([item.get("text")])]


def refer_to_image(pointer: str, builder: Builder) -> FilePart:
    """Return a picture by its id. The archive may contain its content."""
    builder.losses.append("file_by_name_only")
    return FilePart("image/*", "", pointer[:500])


def parse_chatgpt_outputs(about: object, builder: Builder) -> list[FilePart]:
    """Return the pictures that a run of code made, from the metadata of its message."""
    run = about.get("aggregate_result") if isinstance(about, Mapping) else None
    listed = run.get("messages") if isinstance(run, Mapping) else None
    urls = [item.get("image_url") for item in get_list_items(listed) if isinstance(item, Mapping)]
    return [refer_to_image(url, builder) for url in urls if isinstance(url, str) and url]


def parse_chatgpt_attachments(
    message: Mapping[str, Any], *, parts: Sequence[Part], builder: Builder
) -> list[Part]:
    """Return the attachments of a ChatGPT user's message to which its content does not refer.

    These are documents: the content of a message names only its pictures.
    """
    author, about = message.get("author"), message.get("metadata")
    if not (isinstance(author, Mapping) and author.get("role") == "user"):
        return []
    listed = about.get("attachments") if isinstance(about, Mapping) else None
    shown = [part.reference for part in parts if isinstance(part, FilePart)]
    found: list[Part] = []
    for item in get_list_items(listed):
        if not isinstance(item, Mapping):
            continue
        own, name = str(item.get("id") or "")[:200], str(item.get("name") or "")[:200]
        if not (own or name) or (own and any(own in reference for reference in shown)):
            continue
        builder.losses.append("file_by_name_only")
        found.append(FilePart("file/*", name, f"{FILE_OF_CHATGPT}{own}" if own else ""))
    return found


def parse_claude_chat(chat: Mapping[str, Any]) -> Found:
    """Parse a Claude conversation. Newer exports name the parent of each message."""
    title, listed = chat.get("name"), chat["chat_messages"]
    if not is_json_list(listed):
        return Unreadable(
            str(title or ""),
            gettext_noop("The chat’s `chat_messages` is not a list. Export the chat again."),
        )
    builder = Builder(is_chain=True)
    before: str | None = None
    for place, item in enumerate(listed, start=1):
        if not isinstance(item, Mapping):
            builder.drop(f"message_dropped:{place}")
            continue
        own = str(item.get("uuid") or f"{chat.get('uuid')}-{place}")
        parent = item.get("parent_message_uuid", before)
        if not isinstance(parent, str) or parent in NO_PARENT:
            parent = None
        before = parse_claude_message(item, own=own, parent=parent, builder=builder)
    end, source = chat.get("current_leaf_message_uuid"), str(chat.get("uuid") or "")
    release_lazy_value(listed)
    return builder.draft(
        source=source,
        title=title,
        active=end if isinstance(end, str) else None,
        pinned=chat.get("is_starred"),
        folder=chat.get("project") or chat.get("project_uuid"),
    )


def parse_claude_message(
    item: Mapping[str, Any], *, own: str, parent: str | None, builder: Builder
) -> str:
    """Parse one Claude message with attached texts and files. Return its id in the draft."""
    role: Any = "user" if item.get("sender") == "human" else "assistant"
    content = item.get("content")
    listed = content if is_json_list(content) and content else item.get("text") or content
    blocks = get_list_items(listed) if is_json_list(listed) else [listed]
    parts: list[Part] = []
    open_calls: list[ToolCallPart] = []
    results = ResultCollector(parts, builder.losses)
    for block in blocks:
        if isinstance(block, Mapping) and block.get("type") == "tool_result":
            # Older exports name no call: results follow the order of the calls.
            calls = [part for part in parts if isinstance(part, ToolCallPart)]
            named = [call for call in calls if call.call_id == block.get("tool_use_id")]
            for call in (named or open_calls)[:1]:
                open_calls = [other for other in open_calls if other is not call]
                results.add(call, extract_result_text(block.get("content")))
                break
            else:
                builder.losses.append("stray_result")
        else:
            read = builder.blocks([block])
            parts += read
            open_calls += [part for part in read if isinstance(part, ToolCallPart)]
    for attached in get_list_items(item.get("attachments")):
        if isinstance(attached, Mapping):
            name = str(attached.get("file_name") or "")
            parts += [
                TextPart(f"{name}\n\n{t}")
                for t in select_texts([attached.get("extracted_content")])
            ]
    parts += builder.files(get_list_items(item.get("files")))
    results.finish()
    return builder.add(own, parent=parent, role=role, parts=parts, ts=item.get("created_at"))
