"""What a chat remembers beyond its prompt: the archive and the search in it."""
