"""Sentences for the losses of an import."""

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "part_dropped": "Parts that belong beside a chat, such as sources, were left out.",
    "output_as_text": "Results of tools that are not text were stored as JSON.",
    "error_as_output": "Errors of tools were stored as their results.",
    "content_dropped": "Content of a kind that a message cannot have here was left out.",
    "stray_result": "Results of tools whose call is not in the file were left out.",
    "file_by_name_only": "Files and pictures were imported by name. The file has no more of them.",
    "image_dropped": (
        "Pictures that are damaged, too large, of an unknown kind, or in no message were left out."
    ),
    "id_twice": "Messages that shared an id got an id of their own.",
    "message_dropped": "Entries that are not messages were left out.",
    "message_changed": (
        "Messages that were imported before have other words in this file. The earlier words are"
        " kept."
    ),
    "entry_dropped": "Entries that are not messages were left out.",
    "parent_missing": (
        "Messages whose predecessor is not in the file begin a branch, or follow the message before"
        " them in the file."
    ),
    "loop_cut": "Messages that follow each other in a circle begin a branch.",
    "system_moved": "A system text between the messages was left out.",
    "system_left_out": "System texts were left out.",
    "system_text_left_out": "Its system text was left out. You can set one for the chat.",
    "summary_replaced": "Of several summaries, the newest was imported.",
    "summary_left_out": (
        "Its summary was left out. Your policy does not let you change summaries or make one of"
        " this length, or the summary is of another branch. All messages are here."
    ),
    "folder_left_out": (
        "It was not put into its folder. You have as many folders as allowed, or the folder's name"
        " cannot be used."
    ),
    "further_losses": "There were more losses than are listed here.",
}


def loss_words(loss: str) -> str:
    """Return the sentence for a loss; an unknown one is returned as it is."""
    return WORDS.get(loss.partition(":")[0], loss)
