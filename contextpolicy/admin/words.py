"""Display names of policy fields and values on the admin pages."""

from django.utils.translation import gettext_lazy

STRATEGY_NAMES = {
    "simple": gettext_lazy("Newest messages, counted"),
    "sliding_window": gettext_lazy("Newest messages, as many as fit"),
    "dynamic_summary": gettext_lazy("Newest messages and a summary of the rest"),
    "entity_state": gettext_lazy("A state instead of the dialogue"),
}
LAYOUTS = {
    "multi_turn": gettext_lazy("Each message in its own role"),
    "A": gettext_lazy("A: history as text and the question in one message"),
    "B": gettext_lazy("B: history as text in a separate message before the question"),
    "C": gettext_lazy("C: as A, with both system texts"),
}
CHAT_SYSTEMS = {
    "layout": gettext_lazy(
        "Depends on the layout: A replaces the policy's text, the others append to it"
    ),
    "append": gettext_lazy("Follows the policy's text"),
    "replace": gettext_lazy("Replaces the policy's text"),
    "ignore": gettext_lazy("Not sent"),
}
RIGHTS = {
    "owner": gettext_lazy("The chat's owner"),
    "admins": gettext_lazy("Policy administrators"),
    "nobody": gettext_lazy("Nobody"),
}
REFERENCE_SCOPES = {
    "chat": gettext_lazy("Messages of this chat that its prompt leaves out"),
    "folder": gettext_lazy(
        "Chats of the same folder; without a folder, the person's chats in no folder"
    ),
    "person": gettext_lazy("All chats of the person"),
}
UNMANAGED = {
    "none": gettext_lazy("None"),
    "keys": gettext_lazy("Requests of API keys with this setting"),
    "asked": gettext_lazy("Requests of such keys, and requests that ask for it"),
    "all": gettext_lazy("All"),
}
APPROVALS = {
    "nobody": gettext_lazy("No one: used when it is ready"),
    "owner": gettext_lazy("The chat's owner"),
    "admins": gettext_lazy("A policy administrator"),
}
KIND_NAMES = {
    "url": gettext_lazy("Addresses (URLs)"),
    "date": gettext_lazy("Dates and times"),
    "identifier": gettext_lazy("Identifiers, paths and e-mail addresses"),
    "number": gettext_lazy("Numbers"),
    "name": gettext_lazy("Names"),
}
