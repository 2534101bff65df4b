"""Export chats to files and import them: formats, limits, and storage."""
