"""The error with which an operator's command stops."""


class OperationRefused(Exception):
    """An operator's command cannot start or continue.

    `code` is stable. `sentence` says what happened and what to do.
    """

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.sentence = sentence
