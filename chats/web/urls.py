"""The addresses of the pages, their parts, and the event stream of a reply."""

from django.urls import path

from chats.streams.web import turn_stream
from chats.web import (
    chat_list,
    chat_pages,
    compaction_actions,
    compaction_list,
    compaction_page,
    erasing,
    find,
    message_actions,
    new_chat,
    originals,
    receipts,
    settings_page,
    setup,
    state,
    system_text,
    turn_actions,
)

app_name = "chats"
CHAT = "chats/<uuid:chat_id>/"
TURN = CHAT + "turns/<uuid:turn_id>/"
MESSAGE = CHAT + "messages/<uuid:message_id>/"
COMPACTION = CHAT + "compactions/<uuid:compaction_id>/"

urlpatterns = [
    path("", chat_pages.home, name="home"),
    path("chats/new", new_chat.chat_new, name="chat-new"),
    path("chats/list", chat_list.chat_list, name="chat-list"),
    path(CHAT, chat_pages.chat_page, name="chat"),
    path(CHAT + "messages", chat_pages.message_create, name="message-create"),
    path(CHAT + "tail", chat_pages.tail, name="tail"),
    path(CHAT + "look", chat_pages.look, name="look"),
    path(CHAT + "find", find.find, name="find"),
    path(CHAT + "meter", chat_pages.meter, name="meter"),
    path(CHAT + "state", state.state, name="state"),
    path(CHAT + "state/reset", state.state_reset, name="state-reset"),
    path(CHAT + "system-text", system_text.system_text, name="system-text"),
    path(CHAT + "rename", chat_pages.chat_rename, name="chat-rename"),
    path(CHAT + "model", chat_pages.chat_model, name="chat-model"),
    path(CHAT + "delete", chat_pages.chat_delete, name="chat-delete"),
    path(CHAT + "erase", erasing.chat_erase, name="chat-erase"),
    path(CHAT + "erased", erasing.chat_erased, name="chat-erased"),
    path(CHAT + "compact", compaction_actions.compact, name="compact"),
    path(CHAT + "resume", compaction_actions.compaction_resume, name="compaction-resume"),
    path(CHAT + "reset", compaction_actions.compaction_reset, name="compaction-reset"),
    path(
        CHAT + "branches/<uuid:branch_id>/choose",
        message_actions.branch_choose,
        name="branch-choose",
    ),
    path(MESSAGE, message_actions.message, name="message"),
    path(MESSAGE + "keep", turn_actions.message_keep, name="message-keep"),
    path(MESSAGE + "pin", message_actions.message_pin, name="message-pin"),
    path(MESSAGE + "unpin", message_actions.message_unpin, name="message-unpin"),
    path(MESSAGE + "exclude", message_actions.message_exclude, name="message-exclude"),
    path(MESSAGE + "include", message_actions.message_include, name="message-include"),
    path(MESSAGE + "edit", message_actions.message_edit, name="message-edit"),
    path(MESSAGE + "regenerate", message_actions.message_regenerate, name="message-regenerate"),
    path(MESSAGE + "branch", message_actions.message_branch, name="message-branch"),
    path(MESSAGE + "erase", erasing.message_erase, name="message-erase"),
    path(CHAT + "compactions/", compaction_list.compactions, name="compactions"),
    path(COMPACTION, compaction_page.compaction, name="compaction"),
    path(COMPACTION + "originals", originals.originals, name="originals"),
    path(COMPACTION + "revise", compaction_page.compaction_revise, name="compaction-revise"),
    path(COMPACTION + "weigh", compaction_page.compaction_weigh, name="compaction-weigh"),
    path(COMPACTION + "undo", compaction_actions.compaction_undo, name="compaction-undo"),
    path(COMPACTION + "redo", compaction_actions.compaction_redo, name="compaction-redo"),
    path(COMPACTION + "cancel", compaction_actions.compaction_cancel, name="compaction-cancel"),
    path(COMPACTION + "rerun", compaction_actions.compaction_rerun, name="compaction-rerun"),
    path(COMPACTION + "approve", compaction_actions.compaction_approve, name="compaction-approve"),
    path(COMPACTION + "reject", compaction_actions.compaction_reject, name="compaction-reject"),
    path(TURN + "stream", turn_stream, name="turn-stream"),
    path(TURN + "queue", turn_actions.turn_queue, name="turn-queue"),
    path(TURN + "stop", turn_actions.turn_stop, name="turn-stop"),
    path(TURN + "retry", turn_actions.turn_retry, name="turn-retry"),
    path(TURN + "continue", turn_actions.turn_continue, name="turn-continue"),
    path(TURN + "receipt", receipts.receipt, name="receipt"),
    path("setup/", setup.setup, name="setup"),
    path("settings/", settings_page.settings_page, name="settings"),
    path("settings/sessions/<slug:session>/end", settings_page.session_end, name="session-end"),
]
