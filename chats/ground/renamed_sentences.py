"""Sentences of earlier versions that rows still contain, so that they are shown translated."""

from collections.abc import Mapping

from django.utils.translation import gettext_noop

# Templates of stored sentences, with the templates that replaced them. Both have the same values.
RENAMED: Mapping[str, str] = {
    "{name} contains no list of chats.": "{name} does not contain a list of chats.",
    "The file {name} contains no list.": "The file {name} does not contain a list of messages.",
    (
        "The tool server cannot be reached, or it closed the connection. Check that the server is "
        "running."
    ): (
        "The tool server cannot be reached, or it closed the connection. Check that the server is "
        "running and that its address is correct, then read the definitions again."
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
        "The server no longer lists this tool. Read its definitions again, and choose other tools "
        "in the policies that allow this one."
    ),
    "The command of this tool server is not in the setting TOOL_COMMANDS.": (
        "This tool server’s command is not in the setting TOOL_COMMANDS. Add it to the setting "
        "and restart, or choose another command."
    ),
}
# Stored sentences whose replacements need values that the rows do not have.
FORMER = (
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
