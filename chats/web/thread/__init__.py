"""The chat thread: rows, entries, and updates of open pages."""
