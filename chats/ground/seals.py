"""The path under which migration 0028 of `chats` finds `new_salt`."""

from chats.ground.commitments import new_salt

__all__ = ["new_salt"]
