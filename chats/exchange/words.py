"""Sentences for the losses in an import."""

from collections.abc import Mapping

from django.utils.translation import gettext, gettext_noop

WORDS: Mapping[str, str] = {
    "part_dropped": gettext_noop(
        "Message content other than text, files and tool calls, such as sources, was left out."
    ),
    "output_as_text": gettext_noop("Tool results other than text were stored as JSON."),
    "error_as_output": gettext_noop("Tool errors were stored as tool results."),
    "content_dropped": gettext_noop("Content of unsupported kinds, such as audio, was left out."),
    "stray_result": gettext_noop("Tool results without a tool call in the file were left out."),
    "result_dropped": gettext_noop(
        "Tool results were left out because their message would be longer than allowed."
    ),
    "file_by_name_only": gettext_noop(
        "Files and pictures were imported by name only. The import file does not contain their "
        "content."
    ),
    "image_dropped": gettext_noop(
        "Pictures were left out because they are damaged, too large, in an unsupported format, or "
        "not part of a message."
    ),
    "image_refused": gettext_noop(
        "Pictures were left out because this instance’s virus scanner refused them."
    ),
    "image_not_scanned": gettext_noop(
        "Pictures were left out because this instance’s virus scanner did not answer. Ask "
        "an operator to check the scanner."
    ),
    "image_over_limit": gettext_noop(
        "Pictures were left out because your files would exceed your storage limit. Delete "
        "files, then import the file again."
    ),
    "file_dropped": gettext_noop(
        "Files were left out because they are damaged, too large, or not allowed on this instance."
        " The messages keep their text."
    ),
    "id_twice": gettext_noop("Messages with duplicate IDs were given new IDs."),
    "message_dropped": gettext_noop("Entries other than messages were left out."),
    "message_changed": gettext_noop(
        "The file contains different text for messages that were imported before. The "
        "earlier text is kept."
    ),
    "entry_dropped": gettext_noop("Entries other than messages were left out."),
    "parent_missing": gettext_noop(
        "Messages without a parent in the file start a branch, or follow the previous message."
    ),
    "loop_cut": gettext_noop("Messages that refer to each other in a cycle start a new branch."),
    "system_moved": gettext_noop("A system text between messages was left out."),
    "system_left_out": gettext_noop(
        "The file’s system texts were left out. You can set one for the chat."
    ),
    "system_text_left_out": gettext_noop(
        "The system text was left out. You can set one for the chat."
    ),
    "summary_replaced": gettext_noop(
        "The file had several summaries. The newest one was imported."
    ),
    "summary_left_out": gettext_noop(
        "The summary was left out. Your policy does not let you edit summaries, the summary is "
        "too long, or it belongs to another branch. All messages were imported."
    ),
    "folder_left_out": gettext_noop(
        "The chat was not moved to its folder. You have reached the folder limit, or the folder "
        "name is not allowed."
    ),
    "project_left_out": gettext_noop(
        "The chat was not moved to a folder, because the file does not contain the name of its "
        "folder or project."
    ),
    "further_losses": gettext_noop(
        "This list is incomplete: more content of this chat was left out."
    ),
}


def describe_loss(loss: str) -> str:
    """Return the sentence for a loss in the reader's language.

    An unknown loss is returned unchanged.
    """
    kind = loss.partition(":")[0]
    return gettext(WORDS[kind]) if kind in WORDS else loss
