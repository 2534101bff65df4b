"""The error that stops an operator's command."""


class OperationRefused(Exception):
    """An operator's command cannot start or continue.

    `code` is stable. `sentence` explains the problem and the remedy.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.sentence = sentence
