"""The actions of people on a chat: create, branch, mark, edit, erase."""
