"""Compatibility module: migration 0028 of `chats` imports `new_salt` from here."""

from chats.ground.commitments import new_salt

__all__ = ["new_salt"]
