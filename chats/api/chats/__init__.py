"""Endpoints of chats: messages, turns, branches, compactions, search, imports and exports."""
