"""Decides when a streamed reply has ended and whether it is complete.

Servers differ. Most send a finish reason with or after the last text, and then an end mark
(`[DONE]`, `message_stop`). Some send a finish reason with each chunk, an empty or unknown one, or
none. Some never send the mark. Some report an error after the finish reason. The rules:

1. A finish reason holds until more output follows it. It does not end the reply.
2. The end mark ends the reply. Without a finish reason, the reply is complete if it has output.
3. A connection that closes properly ends the reply. It is complete if a finish reason holds.
4. A connection that stays open but silent ends the reply if a finish reason holds. It never does
   for a server that sent output after a finish reason, because its reasons are unreliable.
5. A connection that breaks before the end mark leaves the reply incomplete.

`docs/servers.md` lists what each family of servers sends.
"""

from chats.providers.base import FinishReason, ProviderError

# Finish reasons as servers write them, in lower case. An unknown reason counts as none.
_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "complete": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_call": "tool_calls",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "refusal": "refusal",
}
# The server aborted: the reply is incomplete even if the end mark follows.
_BROKEN_OFF = frozenset(
    {
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "compaction",
        "incomplete",
        "insufficient_system_resource",
        "malformed_function_call",
        "network_error",
        "pause_turn",
        "timeout",
        "unexpected_tool_call",
    }
)
# Texts that some servers send instead of null.
_NO_REASON = frozenset({"", "null", "none"})


class StreamEnd:
    """Tracks the end of one reply: output, finish reason, end marker."""

    def __init__(self) -> None:
        self.has_output = False
        # The end mark arrived.
        self.is_marked = False
        # The current finish reason, in lower case. Empty without one.
        self.reason = ""
        # The reason arrived in a separate chunk after text.
        self._is_separate = False
        # Output followed a finish reason.
        self._is_unreliable = False

    def note_chunk(self, *, has_output: bool, reason: object = None) -> None:
        """Record whether a chunk had output, and its finish reason."""
        said = reason.strip().lower() if isinstance(reason, str) else ""
        said = "" if said in _NO_REASON else said
        if has_output:
            self._is_unreliable = self._is_unreliable or bool(self.reason)
            self.reason = said
            self._is_separate = False
        elif said:
            self.reason = said
            self._is_separate = self.has_output
        self.has_output = self.has_output or has_output

    def note_mark(self) -> None:
        self.is_marked = True

    @property
    def is_finished(self) -> bool:
        """True if the server sent a finish reason and never sent output after one."""
        return bool(self.reason) and not self._is_unreliable

    @property
    def is_separate(self) -> bool:
        """True if the finish reason arrived in a separate chunk. No more text is then expected."""
        return self.is_finished and self._is_separate

    def ends_with(self, error: ProviderError) -> bool:
        """Return True if the reply had already ended when reading failed with this error."""
        return self.is_marked or (self.is_finished and error.code == "provider_timeout")

    def finish_reason(self, *, has_calls: bool = False) -> FinishReason:
        """Return the reason why the reply ended; "none" if it is incomplete.

        Call it after the stream has ended. Ollama and Gemini report "stop" even with tool calls.
        """
        found = _REASONS.get(self.reason, "none")
        # Gemini also sends "function_call_filter: MALFORMED_FUNCTION_CALL".
        parts = {part.strip() for part in self.reason.split(":")}
        is_ended = self.is_marked and self.has_output and parts.isdisjoint(_BROKEN_OFF)
        if found == "none" and is_ended:
            found = "stop"
        return "tool_calls" if found == "stop" and has_calls else found
