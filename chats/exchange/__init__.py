"""Chats going out as files and coming in from them: forms, bounds, and the making of chats."""
