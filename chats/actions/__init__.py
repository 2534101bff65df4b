"""User actions on chats and messages: create, branch, pin, exclude, edit, share, erase."""
