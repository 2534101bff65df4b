"""Display names of policy fields and of their values on the admin pages."""

from django.utils.translation import gettext_lazy

STRATEGY_NAMES = {
    "simple": gettext_lazy("Newest messages (fixed number)"),
    "sliding_window": gettext_lazy("Newest messages (as many as fit)"),
    "dynamic_summary": gettext_lazy("Newest messages and a summary of the others"),
    "entity_state": gettext_lazy("State instead of the dialogue"),
}
LAYOUTS = {
    "multi_turn": gettext_lazy("Separate messages"),
    "A": gettext_lazy("A: history as text and the question in one message"),
    "B": gettext_lazy("B: history as text in a separate message before the question"),
    "C": gettext_lazy("C: like A, with both system texts"),
}
CHAT_SYSTEMS = {
    "layout": gettext_lazy(
        "Depends on the layout (A replaces the text of the policy, the others append to it)"
    ),
    "append": gettext_lazy("Appended to the text of the policy"),
    "replace": gettext_lazy("Replaces the text of the policy"),
    "ignore": gettext_lazy("Not sent"),
}
RIGHTS = {
    "owner": gettext_lazy("The chat's owner"),
    "admins": gettext_lazy("Policy administrators"),
    "nobody": gettext_lazy("No user"),
}
REFERENCE_SCOPES = {
    "chat": gettext_lazy("Messages of this chat that its prompt leaves out"),
    "folder": gettext_lazy("Chats of the same folder, or without a folder"),
    "person": gettext_lazy("All chats of the person"),
}
UNMANAGED = {
    "none": gettext_lazy("None"),
    "keys": gettext_lazy("Requests with API keys that have this setting"),
    "asked": gettext_lazy("Requests with such API keys, and requests that ask for pass-through"),
    "all": gettext_lazy("All"),
}
APPROVALS = {
    "nobody": gettext_lazy("Not required: used when it is ready"),
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
