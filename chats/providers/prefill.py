"""Reply prefills: the beginning of a reply that a client wrote and a model continues."""


class ReplyOpening:
    """Prepends the prefill to the text of a reply as it arrives.

    `may_repeat`: some servers repeat the prefill, others do not. A repetition is not added twice.
    """

    def __init__(self, text: str = "", *, may_repeat: bool = False) -> None:
        self.text = text
        self.may_repeat = may_repeat
        self.held = ""
        self.is_over = not text

    def push(self, piece: str) -> str:
        """Return the text to add. Empty while the pieces so far may repeat the prefill."""
        if self.is_over:
            return piece
        self.held += piece
        is_shorter = len(self.held) < len(self.text)
        if self.may_repeat and is_shorter and self.text.startswith(self.held):
            return ""
        return self.flush()

    def flush(self) -> str:
        """Return the held-back text, after the prefill unless the model repeated it.

        Empty if no text arrived, or after the first call.
        """
        if self.is_over or not self.held:
            return ""
        self.is_over = True
        has_repeated = self.may_repeat and self.held.startswith(self.text)
        return self.held if has_repeated else self.text + self.held
