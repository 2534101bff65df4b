"""Request bodies and query parameters about summaries."""

from chats.api.core.inputs import Identifier, PlainText, Strict


class NewCompaction(Strict):
    """Instructions and model for a requested summary."""

    focus = PlainText(
        default="",
        help_text=(
            "Details that the summary should keep, at most 500 characters. Empty: nothing "
            "in particular."
        ),
    )
    model = PlainText(
        default=None,
        allow_null=True,
        help_text=(
            "Id of the model that writes the summary. Null: the policy's model. Empty: no model; "
            "the summary consists of sentences extracted from the messages."
        ),
    )


class Revision(Strict):
    """The corrected text of a summary."""

    text = PlainText(
        help_text=(
            "Complete text of the summary in Markdown: headings, and bullets that end with the "
            "sequence numbers of their sources, such as `- … [#3, #7]`."
        )
    )


class Rejection(Strict):
    """The reason for rejecting a pending summary, shown to the chat's owner."""

    reason = PlainText(
        default="",
        help_text=(
            "Reason for the rejection, at most 400 characters. It is stored with the summary. "
            "Empty: none."
        ),
    )


class CompareQuery(Strict):
    """The two compactions to compare."""

    older = Identifier(help_text="Id of the compaction whose text is `before`.")
    newer = Identifier(help_text="Id of the compaction whose text is `after`.")
