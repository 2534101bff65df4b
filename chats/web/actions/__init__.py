"""Actions of the chat page, grouped by the kind of object."""
