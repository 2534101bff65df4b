"""The actions of people on a chat: create, branch, mark, correct, erase."""
