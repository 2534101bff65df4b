"""Sentences of earlier versions that rows still contain, so that they are shown translated."""

from collections.abc import Mapping

from django.utils.translation import gettext_noop

# Templates of stored sentences, with the templates that replaced them. Both have the same values.
RENAMED: Mapping[str, str] = {
    "{name} contains no list of chats.": (
        "{name} does not contain a list of chats. Export your chats again."
    ),
    "The file {name} contains no list.": (
        "The file {name} does not contain a list of messages. Export the chat again."
    ),
    (
        "The tool server cannot be reached, or it closed the connection. Check that the server "
        "is running."
    ): (
        "The tool server cannot be reached, or it closed the connection. Check that the server "
        "is running and that its address is correct, then read the definitions again."
    ),
    (
        "The address of the tool server is not allowed. List private servers in "
        "ALLOWED_PRIVATE_PROVIDERS."
    ): (
        "The tool server’s address is not allowed: private networks and plain http need an entry "
        "in ALLOWED_PRIVATE_PROVIDERS. If you run this server, list it there, then restart."
    ),
    "The definition of the tool changed on its server. An administrator must approve it again.": (
        "The tool’s definition changed on its server, so the tool is not called. An "
        "administrator must read and approve it again."
    ),
    "The server no longer lists this tool.": (
        "The server no longer lists this tool. Read its definitions again, and choose other "
        "tools in the policies that allow this one."
    ),
    "The command of this tool server is not in the setting TOOL_COMMANDS.": (
        "This tool server’s command is not in the setting TOOL_COMMANDS. Add it to the setting "
        "and restart, or choose another command."
    ),
    "The `mapping` of the chat is not an object.": (
        "The chat’s `mapping` is not an object. Export the chat again."
    ),
    "The `conversation` of the entry is not an object.": (
        "The entry’s `conversation` is not an object. Export the chat again."
    ),
    "The data of this chat exceeds the limit of {limit} MiB.": (
        "This chat exceeds the limit of {limit} MiB. Remove some of its messages or images."
    ),
    "Line {number} is larger than {limit} MiB.": (
        "Line {number} is larger than {limit} MiB. Shorten or remove it."
    ),
    "The list has more than {limit:,} messages.": (
        "The list has more than {limit:,} messages. Split it."
    ),
    "Message {id} exceeds the limit of {limit:,} characters.": (
        "Message {id} exceeds the limit of {limit:,} characters. Shorten it."
    ),
    "Message {id} contains a character that cannot be stored.": (
        "Message {id} contains a character that cannot be stored. Remove the character."
    ),
    "{name} does not contain a list of chats.": (
        "{name} does not contain a list of chats. Export your chats again."
    ),
    "A text in {place} is larger than {limit} bytes.": (
        "A string in {place} is larger than {limit} bytes. Shorten it."
    ),
    "There are too many entries in {place}.": (
        "There are too many entries in {place}. Remove some of them."
    ),
    "The ID of the message in {place} is too long or contains control characters.": (
        "The message ID in {place} is too long or contains control characters. Correct it."
    ),
    "The ID {id} appears twice, the second time in {place}.": (
        "The ID {id} appears twice, the second time in {place}. Change one of the IDs."
    ),
    "Message {id} refers to a parent that does not precede it.": (
        "Message {id} refers to a parent that does not precede it. Move the parent before it."
    ),
    "The file {name} does not contain a list of messages.": (
        "The file {name} does not contain a list of messages. Export the chat again."
    ),
    "The `info` of the session is not an object.": (
        "The session’s `info` is not an object. Export the session again."
    ),
    "The `chat_messages` of the chat is not a list.": (
        "The chat’s `chat_messages` is not a list. Export the chat again."
    ),
    "The chat has no `history.messages`.": (
        "The chat has no `history.messages`. Export the chat again."
    ),
    "The path of an entry leads outside the archive. Create the archive again.": (
        "An entry’s path leads outside the archive. Create the archive again."
    ),
    (
        "A tool call of the model exceeded the length limit of a reply. The reply was stopped, "
        "and no tool was run. Try again. If the error persists, choose another model."
    ): (
        "One of the model’s tool calls exceeded the length limit of a reply. The reply was "
        "stopped, and no tool was run. Try again. If the error persists, choose another model."
    ),
    (
        "The address of the tool server is not allowed: private networks and plain http need an "
        "entry in ALLOWED_PRIVATE_PROVIDERS. If you run this server, list it there, then restart."
    ): (
        "The tool server’s address is not allowed: private networks and plain http need an entry "
        "in ALLOWED_PRIVATE_PROVIDERS. If you run this server, list it there, then restart."
    ),
    (
        "The command of this tool server is not in the setting TOOL_COMMANDS. Add it to the "
        "setting and restart, or choose another command."
    ): (
        "This tool server’s command is not in the setting TOOL_COMMANDS. Add it to the setting "
        "and restart, or choose another command."
    ),
    (
        "The definition of the tool changed on its server, so it is not called. An administrator "
        "must read and approve it again."
    ): (
        "The tool’s definition changed on its server, so the tool is not called. An "
        "administrator must read and approve it again."
    ),
    (
        "The response of the tool server does not follow the protocol MCP, or one message "
        "exceeds {mebibytes} MiB. Check that the address is that of an MCP server and that its "
        "credential is valid, then read the definitions again."
    ): (
        "The tool server’s response does not follow the MCP protocol, or one message exceeds "
        "{mebibytes} MiB. Check that the address belongs to an MCP server and that the "
        "credential is valid, then read the definitions again."
    ),
    ("A text in {place} is larger than {limit} bytes. Shorten it."): (
        "A string in {place} is larger than {limit} bytes. Shorten it."
    ),
    ("Chat {number} of {name} has no ID, or does not name a file in the archive."): (
        "Chat {number} in {name} has no ID, or does not refer to a file in the archive."
    ),
    (
        "Supported: UI messages (JSON or JSONL); bundles; exports of ChatGPT, Claude, DeepSeek, "
        "Grok, Gemini (Takeout), Open WebUI and LibreChat; sessions of Claude Code, Codex, "
        "opencode, pi, aider and llama.cpp; plain messages with role and content."
    ): (
        "Supported: UI messages (JSON or JSONL); bundles; exports from ChatGPT, Claude, "
        "DeepSeek, Grok, Gemini (Takeout), Open WebUI and LibreChat; sessions from Claude Code, "
        "Codex, opencode, pi, aider and llama.cpp; plain messages with role and content."
    ),
    ("it is a session of {program}"): ("it is a session from {program}"),
    ("The file is an export of {product}, but was detected as {form}."): (
        "This chat was exported from {product}, but the file was detected as {form}."
    ),
    (
        "The archive has no file in a known format, such as `history.jsonl`, `account.json` or "
        "`conversations.json`. {known}"
    ): (
        "The archive contains none of the known files, such as `history.jsonl`, `account.json` "
        "or `conversations.json`. {known}"
    ),
    ("a name is missing"): ("a property name is missing"),
    (
        "The worker stopped {times} times while importing the same chat, often because of a lack "
        "of memory. The chats below were imported. Upload the file again. If the import fails "
        "again, tell your administrator."
    ): (
        "The worker stopped {times} times while importing the same chat, often because of a lack "
        "of memory. The chats below were imported. Upload the file again. If the import fails "
        "again, tell an operator."
    ),
    (
        "The server lists more than {tools:,} tools, a tool without a name, or a definition of "
        "more than {characters:,} characters. Configure the server to list fewer or shorter "
        "tools, then read the definitions again."
    ): (
        "The server lists more than {tools:,} tools, a tool without a name, or a definition of "
        "more than {characters:,} characters. Configure the server to list fewer tools or "
        "shorter definitions, then read the definitions again."
    ),
}
# Stored sentences whose replacements need values that the rows do not have.
FORMER = (
    gettext_noop("An entry’s path leads outside the archive. Create the archive again."),
    gettext_noop("The tool server’s response does not follow the protocol, or it is too large."),
    gettext_noop("The tool server did not answer in time."),
    gettext_noop(
        "The server lists more than 500 tools, a tool without a name, or a definition of more than "
        "20,000 characters."
    ),
)
# Earlier versions stored the whole sentence of a tool server as the value of this template.
WHOLE = "{reason}"


def find_current_template(stored: str) -> str:
    """Return the current template of a stored one."""
    return RENAMED.get(stored, stored)
