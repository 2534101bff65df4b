"""Several agents in one chat: what they say, their task, and the part that each is shown."""
