"""The error of an operator's command that stops before it changes anything."""


class OperationRefused(Exception):
    """A command stops before it changes anything.

    `code` is stable, `sentence` says what happened and what to do.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.sentence = sentence
