"""Exports and imports chats as files: formats, limits, and storage."""
