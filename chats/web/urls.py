"""The addresses of the pages, their parts, and the event stream of a reply."""

from django.urls import path

from chats.streams.web import turn_stream
from chats.web import (
    chat_pages,
    new_chat,
    originals,
    receipts,
    settings_page,
    setup,
    state,
    turn_actions,
)

app_name = "chats"
CHAT = "chats/<uuid:chat_id>/"
TURN = CHAT + "turns/<uuid:turn_id>/"

urlpatterns = [
    path("", chat_pages.home, name="home"),
    path("chats/new", new_chat.chat_new, name="chat-new"),
    path(CHAT, chat_pages.chat_page, name="chat"),
    path(CHAT + "messages", chat_pages.message_create, name="message-create"),
    path(CHAT + "tail", chat_pages.tail, name="tail"),
    path(CHAT + "look", chat_pages.look, name="look"),
    path(CHAT + "meter", chat_pages.meter, name="meter"),
    path(CHAT + "state", state.state, name="state"),
    path(CHAT + "state/reset", state.state_reset, name="state-reset"),
    path(CHAT + "rename", chat_pages.chat_rename, name="chat-rename"),
    path(CHAT + "model", chat_pages.chat_model, name="chat-model"),
    path(CHAT + "delete", chat_pages.chat_delete, name="chat-delete"),
    path(CHAT + "messages/<uuid:message_id>/keep", turn_actions.message_keep, name="message-keep"),
    path(
        CHAT + "compactions/<uuid:compaction_id>/originals", originals.originals, name="originals"
    ),
    path(TURN + "stream", turn_stream, name="turn-stream"),
    path(TURN + "queue", turn_actions.turn_queue, name="turn-queue"),
    path(TURN + "stop", turn_actions.turn_stop, name="turn-stop"),
    path(TURN + "retry", turn_actions.turn_retry, name="turn-retry"),
    path(TURN + "continue", turn_actions.turn_continue, name="turn-continue"),
    path(TURN + "receipt", receipts.receipt, name="receipt"),
    path("setup/", setup.setup, name="setup"),
    path("settings/", settings_page.settings_page, name="settings"),
]
