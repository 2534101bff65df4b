"""Actions of the chat page, one module per kind of object."""
