"""The memory of a chat beyond its prompt: the archive and the search in it."""
