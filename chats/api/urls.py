"""The addresses of the REST API, below /api/v1/. Without trailing slashes; ids are UUIDs."""

from django.urls import path, re_path

from chats.api import (
    audit,
    chats,
    compactions,
    docs,
    messages,
    models,
    own_keys,
    policy,
    state,
    turns,
)
from chats.api.endpoint import nothing_here
from chats.streams.api import turn_events

app_name = "api"
CHAT = "chats/<uuid:chat_id>"
TURN = f"{CHAT}/turns/<uuid:turn_id>"

urlpatterns = [
    path("chats", chats.Chats.as_view(), name="chats"),
    path(CHAT, chats.OneChat.as_view(), name="chat"),
    path(f"{CHAT}/messages", messages.Messages.as_view(), name="messages"),
    path(TURN, turns.OneTurn.as_view(), name="turn"),
    path(f"{TURN}/stop", turns.StopTurn.as_view(), name="turn-stop"),
    path(f"{TURN}/retry", turns.RetryTurn.as_view(), name="turn-retry"),
    path(f"{TURN}/continue", turns.ContinueTurn.as_view(), name="turn-continue"),
    path(f"{TURN}/events", turn_events, name="turn-events"),
    path(f"{CHAT}/compactions", compactions.Compactions.as_view(), name="compactions"),
    path(
        f"{CHAT}/compactions/<uuid:compaction_id>",
        compactions.OneCompaction.as_view(),
        name="compaction",
    ),
    path(f"{CHAT}/policy", policy.ChatPolicy.as_view(), name="policy"),
    path(f"{CHAT}/state", state.State.as_view(), name="state"),
    path("audit/events", audit.Events.as_view(), name="events"),
    path("models", models.Models.as_view(), name="models"),
    path("keys", own_keys.Keys.as_view(), name="keys"),
    path("keys/<uuid:key_id>", own_keys.OneKey.as_view(), name="key"),
    path("schema", docs.Schema.as_view(), name="schema"),
    path("docs", docs.page, name="docs"),
    path("docs.js", docs.script, name="docs-script"),
    # Programs get JSON from here for every address, also for one that does not exist.
    re_path("", nothing_here),
]
