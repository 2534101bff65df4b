"""Sentences for the losses of an import."""

from collections.abc import Mapping

from django.utils.translation import gettext, gettext_noop

WORDS: Mapping[str, str] = {
    "part_dropped": gettext_noop("Parts that are not messages, such as sources, were left out."),
    "output_as_text": gettext_noop("Results of tools that are not text were stored as JSON."),
    "error_as_output": gettext_noop("Errors of tools were stored as their results."),
    "content_dropped": gettext_noop(
        "Content of a kind that a message cannot have here was left out."
    ),
    "stray_result": gettext_noop("Results of tools whose call is not in the file were left out."),
    "file_by_name_only": gettext_noop(
        "Files and pictures were imported by name. The file has no more of them."
    ),
    "image_dropped": gettext_noop(
        "Pictures that are damaged, too large, of an unknown kind, or in no message were left out."
    ),
    "id_twice": gettext_noop("Messages that shared an id got separate ids."),
    "message_dropped": gettext_noop("Entries that are not messages were left out."),
    "message_changed": gettext_noop(
        "Messages that were imported before have other words in this file. The earlier words are"
        " kept."
    ),
    "entry_dropped": gettext_noop("Entries that are not messages were left out."),
    "parent_missing": gettext_noop(
        "Messages whose parent is not in the file start a branch, or follow the previous message "
        "in the file."
    ),
    "loop_cut": gettext_noop("Messages that follow each other in a circle begin a branch."),
    "system_moved": gettext_noop("A system text between the messages was left out."),
    "system_left_out": gettext_noop("System texts were left out."),
    "system_text_left_out": gettext_noop(
        "Its system text was left out. You can set one for the chat."
    ),
    "summary_replaced": gettext_noop("The file had several summaries; the newest was imported."),
    "summary_left_out": gettext_noop(
        "Its summary was left out. Your policy does not let you change summaries or make one of"
        " this length, or the summary is of another branch. All messages are here."
    ),
    "folder_left_out": gettext_noop(
        "It was not put into its folder. You have as many folders as allowed, or the folder's name"
        " cannot be used."
    ),
    "further_losses": gettext_noop("There were more losses than are listed here."),
}


def describe_loss(loss: str) -> str:
    """Return the sentence for a loss in the reader's language; unknown ones unchanged."""
    kind = loss.partition(":")[0]
    return gettext(WORDS[kind]) if kind in WORDS else loss
