"""Actions of the chat page."""
