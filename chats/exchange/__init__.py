"""Exports chats to files and imports them: formats, limits, and storage."""
