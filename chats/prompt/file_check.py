"""Checks that the policy lets the model of a prompt get the files of its chat."""

from collections.abc import Iterable

from django.utils.translation import gettext_noop

from chats.files.file_models import has_branch_files, may_get_files
from chats.models import Branch
from chats.prompt.model_choice import ChosenModel, ModelNotAllowed
from contextpolicy.engine.messages.messages import FilePart, Message


class FilesNotAllowedForModel(ModelNotAllowed):
    """The chat contains files, and its policy does not allow files for its model."""

    code = "files_not_allowed_for_model"
    status = 409
    sentence = gettext_noop(
        "This chat contains files. The policy {policy} does not allow files for the model {model}. "
        "Choose another model, or exclude the messages with files from prompts."
    )


def check_prompt_files(
    branch: Branch, *, choice: ChosenModel, newest: Iterable[Message], before: int
) -> None:
    """Raise `FilesNotAllowedForModel` if the model may not get a file of the chat.

    `newest`: the question and its steps. `before`: the seq at which the history ends.
    """
    if may_get_files(choice.model.slug, values=choice.values):
        return
    is_new = any(isinstance(part, FilePart) for message in newest for part in message.parts)
    if is_new or has_branch_files(branch, before=before):
        raise FilesNotAllowedForModel(policy=choice.effective.label, model=str(choice.model))
