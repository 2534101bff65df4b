"""Names what policies can say, in the words of the administration's pages."""

STRATEGY_NAMES = {
    "simple": "Newest messages, counted",
    "sliding_window": "Newest messages, as many as fit",
    "dynamic_summary": "Newest messages and a summary of the rest",
    "entity_state": "A state instead of the dialogue",
}
LAYOUTS = {
    "multi_turn": "Each message in its own role",
    "A": "A: history as text and the question in one message",
    "B": "B: history as text in a message before the question",
    "C": "C: as A, with both system texts",
}
CHAT_SYSTEMS = {
    "layout": "As the layout does: A replaces the policy's text by it, the others append it",
    "append": "It stands behind the policy's text",
    "replace": "It stands in place of the policy's text",
    "ignore": "It is not sent",
}
RIGHTS = {
    "owner": "The chat's owner",
    "admins": "Policy administrators",
    "nobody": "Nobody",
}
REFERENCE_SCOPES = {
    "chat": "What left this chat's prompt",
    "folder": "Chats of the same folder; without a folder, the person's chats in no folder",
    "person": "All chats of the person",
}
UNMANAGED = {
    "none": "None",
    "keys": "Those of keys that are set so",
    "asked": "Those of such keys, and those that ask for it",
    "all": "All",
}
APPROVALS = {
    "nobody": "Nobody: it is used when it is ready",
    "owner": "The chat's owner",
    "admins": "A policy administrator",
}
KIND_NAMES = {
    "url": "Addresses (URLs)",
    "date": "Dates and times",
    "identifier": "Identifiers, paths and e-mail addresses",
    "number": "Numbers",
    "name": "Names",
}
