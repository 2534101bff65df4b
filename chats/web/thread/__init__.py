"""The thread of a chat: its rows, its entries, and what changes while somebody reads it."""
