"""Messages in all their forms: the engine's value types, OpenAI's, UI messages, images, tokens.

Strategies and history providers in other packages import the value types from here.
"""

from contextpolicy.engine.messages.messages import (
    JOINT,
    LONGEST_FILE_NAME,
    FilePart,
    MalformedParts,
    Message,
    Part,
    ReasoningPart,
    Role,
    Summary,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    WireMessage,
    WireRole,
    convert_parts_to_wires,
    extract_message_text,
    format_file_text,
    format_image_text,
    parse_parts,
    serialize_parts,
)

__all__ = [
    "JOINT",
    "LONGEST_FILE_NAME",
    "FilePart",
    "MalformedParts",
    "Message",
    "Part",
    "ReasoningPart",
    "Role",
    "Summary",
    "TextPart",
    "ToolCallPart",
    "ToolResultPart",
    "ToolSpec",
    "WireMessage",
    "WireRole",
    "convert_parts_to_wires",
    "extract_message_text",
    "format_file_text",
    "format_image_text",
    "parse_parts",
    "serialize_parts",
]
