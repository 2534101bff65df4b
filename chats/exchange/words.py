"""Says in words what an import could not take."""

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "part_dropped": "Parts that only belong beside a chat, such as sources, were left out.",
    "output_as_text": "Results of tools that were no text are kept as JSON.",
    "error_as_output": "Errors of tools are kept as their results.",
    "content_dropped": "Content of a kind that no message can hold here was left out.",
    "stray_result": "Results of tools whose call is not in the file were left out.",
    "file_by_name_only": "Of files and pictures only the names came along; the file has no more.",
    "image_dropped": (
        "Pictures that are damaged, too large, of no known kind, or in no message were left out."
    ),
    "id_twice": "Messages that shared an id with another one were given one of their own.",
    "message_dropped": "An entry that is no message was left out.",
    "entry_dropped": "Entries that are no messages were left out.",
    "system_moved": "A system text amid the messages was left out.",
    "system_text_left_out": "Its system text was left out; you can set one for the chat.",
    "summary_left_out": (
        "Its summary was left out, because the policy does not let you change summaries or make"
        " one of this length; the messages under it are all here."
    ),
    "folder_left_out": (
        "It lies in no folder: you have as many folders as you may, or its folder's name is none."
    ),
    "further_losses": "There were more of these than are named here.",
}


def loss_words(loss: str) -> str:
    """Return the sentence for a loss; one that is not known is told as it is."""
    return WORDS.get(loss.partition(":")[0], loss)
