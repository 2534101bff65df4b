"""URLs of the pages and partials, and of the pages' event stream."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from chats.streams.web import stream_chat_updates
from chats.web import (
    chat_list,
    chat_pages,
    files,
    find,
    help_pages,
    images,
    new_chat,
    organising,
    searching,
    setup,
    system_text,
    teams,
)
from chats.web.account import (
    api_keys,
    exchange,
    imports,
    memory,
    readings,
    skills,
    usage,
    webhooks,
)
from chats.web.account import page as account
from chats.web.actions import compactions, erasing, messages, turns
from chats.web.compactions import listing, originals
from chats.web.compactions import page as compaction
from chats.web.compactions.request import summary_request_page
from chats.web.receipts import page as receipts
from chats.web.receipts.request import request_sent
from chats.web.state import page as state


class Sha256(StringConverter):
    """URL converter for a SHA-256 hash: 64 hexadecimal digits."""

    regex = r"[0-9a-f]{64}"


register_converter(Sha256, "sha256")

app_name = "chats"
CHAT = "chats/<uuid:chat_id>/"
FOLDER = "folders/<uuid:folder_id>/"
TURN = CHAT + "turns/<uuid:turn_id>/"
MESSAGE = CHAT + "messages/<uuid:message_id>/"
IMPORT = "settings/exchange/imports/<uuid:import_id>/"
WEBHOOK = "settings/webhooks/<uuid:webhook_id>/"
DELIVERY = WEBHOOK + "deliveries/<uuid:delivery_id>/"
COMPACTION = CHAT + "compactions/<uuid:compaction_id>/"

urlpatterns = [
    path("", chat_pages.home, name="home"),
    path("stream", stream_chat_updates, name="stream"),
    path("search", searching.chat_search, name="search"),
    path("search/palette", searching.palette, name="palette"),
    path("chats/new", new_chat.chat_new, name="chat-new"),
    path("chats/list", chat_list.chat_list, name="chat-list"),
    path("skills/", skills.skill_list, name="skills"),
    path("skills/import", skills.skill_import, name="skill-import"),
    path("skill/<slug:slug>", skills.skill_edit, name="skill"),
    path("skill/<slug:slug>/delete", skills.skill_delete, name="skill-delete"),
    path("skill/<slug:slug>/export", skills.skill_export, name="skill-export"),
    path("skill/<slug:slug>/file", skills.skill_file_save, name="skill-file"),
    path("skill/<slug:slug>/file/delete", skills.skill_file_delete, name="skill-file-delete"),
    path("teams/", teams.teams, name="teams"),
    path("teams/new", teams.team_new, name="team-new"),
    path("teams/<uuid:team_id>", teams.team_edit, name="team-edit"),
    path("teams/<uuid:team_id>/copy", teams.team_copy, name="team-copy"),
    path("teams/<uuid:team_id>/delete", teams.team_delete, name="team-delete"),
    path("chats/archive", organising.archive_page, name="archive"),
    path(FOLDER, organising.folder, name="folder"),
    path(FOLDER + "rename", organising.folder_rename, name="folder-rename"),
    path(FOLDER + "memory", memory.folder_memory, name="folder-memory"),
    path(FOLDER + "delete", organising.folder_delete, name="folder-delete"),
    path(CHAT, chat_pages.chat_page, name="chat"),
    path(CHAT + "messages", chat_pages.message_create, name="message-create"),
    path(CHAT + "tail", chat_pages.chat_tail, name="tail"),
    path(CHAT + "changes", chat_pages.chat_changes, name="changes"),
    path(CHAT + "find", find.chat_find, name="find"),
    path(CHAT + "meter", chat_pages.chat_meter, name="meter"),
    path(CHAT + "warm-up", chat_pages.chat_warm_up, name="warm-up"),
    path(CHAT + "state", state.chat_state, name="state"),
    path(CHAT + "state/history", state.state_history, name="state-history"),
    path(CHAT + "state/reset", state.state_reset, name="state-reset"),
    path(CHAT + "memory", memory.chat_memory, name="chat-memory"),
    path(CHAT + "system-text", system_text.chat_system_text, name="system-text"),
    path(CHAT + "rename", chat_pages.chat_rename, name="chat-rename"),
    path(CHAT + "team", teams.chat_team, name="chat-team"),
    path(CHAT + "team/task", teams.chat_task, name="chat-task"),
    path(CHAT + "round/go-on", teams.round_go_on, name="round-go-on"),
    path(CHAT + "model", chat_pages.chat_model, name="chat-model"),
    path(CHAT + "organise", organising.chat_organise, name="chat-organise"),
    path(CHAT + "folder", organising.chat_folder, name="chat-folder"),
    path(CHAT + "delete", organising.chat_delete, name="chat-delete"),
    path(CHAT + "deleted", organising.chat_deleted, name="chat-deleted"),
    path(CHAT + "restore", organising.chat_restore, name="chat-restore"),
    path(CHAT + "export", exchange.chat_export, name="chat-export"),
    path(CHAT + "erase", erasing.chat_erase, name="chat-erase"),
    path(CHAT + "erased", erasing.chat_erased, name="chat-erased"),
    path(
        "chats/wishes/<uuid:erasure_id>/withdraw",
        erasing.pending_erasure_cancel,
        name="erasure-cancel",
    ),
    path(CHAT + "compact", compactions.chat_compact, name="compact"),
    path(CHAT + "resume", compactions.compaction_resume, name="compaction-resume"),
    path(CHAT + "reset", compactions.compaction_reset, name="compaction-reset"),
    path(
        CHAT + "branches/<uuid:branch_id>/choose",
        messages.branch_choose,
        name="branch-choose",
    ),
    path(MESSAGE, messages.message_page, name="message"),
    path(MESSAGE + "source", messages.message_source, name="message-source"),
    path("files/attach", files.file_attach, name="file-attach"),
    path("files/unsent", files.files_unsent, name="files-unsent"),
    path("files/<uuid:file_id>/attached", files.file_attached, name="file-attached"),
    path("files/<uuid:file_id>/download", files.file_download, name="file-download"),
    path(MESSAGE + "images/<sha256:sha256>", images.message_image, name="message-image"),
    path(MESSAGE + "show", searching.message_show, name="message-show"),
    path(MESSAGE + "keep", turns.message_keep, name="message-keep"),
    path(MESSAGE + "pin", messages.message_pin, name="message-pin"),
    path(MESSAGE + "unpin", messages.message_unpin, name="message-unpin"),
    path(MESSAGE + "exclude", messages.message_exclude, name="message-exclude"),
    path(MESSAGE + "include", messages.message_include, name="message-include"),
    path(MESSAGE + "edit", messages.message_edit, name="message-edit"),
    path(MESSAGE + "regenerate", messages.message_regenerate, name="message-regenerate"),
    path(MESSAGE + "play-on", messages.message_regenerate_round, name="message-play-on"),
    path(MESSAGE + "branch", messages.message_branch, name="message-branch"),
    path(MESSAGE + "erase", erasing.message_erase, name="message-erase"),
    path(CHAT + "compactions/", listing.compactions, name="compactions"),
    path(COMPACTION, compaction.compaction_page, name="compaction"),
    path(COMPACTION + "originals", originals.originals, name="originals"),
    path(COMPACTION + "request", summary_request_page, name="compaction-request"),
    path(COMPACTION + "revise", compaction.compaction_revise, name="compaction-revise"),
    path(COMPACTION + "weigh", compaction.compaction_preview, name="compaction-weigh"),
    path(COMPACTION + "undo", compactions.compaction_undo, name="compaction-undo"),
    path(COMPACTION + "redo", compactions.compaction_redo, name="compaction-redo"),
    path(COMPACTION + "cancel", compactions.compaction_cancel, name="compaction-cancel"),
    path(COMPACTION + "rerun", compactions.compaction_rerun, name="compaction-rerun"),
    path(COMPACTION + "approve", compactions.compaction_approve, name="compaction-approve"),
    path(COMPACTION + "reject", compactions.compaction_reject, name="compaction-reject"),
    path(TURN + "queue", turns.turn_queue, name="turn-queue"),
    path(TURN + "consent", turns.turn_consent, name="turn-consent"),
    path(TURN + "stop", turns.turn_stop, name="turn-stop"),
    path(TURN + "retry", turns.turn_retry, name="turn-retry"),
    path(TURN + "models", turns.turn_models, name="turn-models"),
    path(TURN + "continue", turns.turn_continue, name="turn-continue"),
    path(TURN + "receipt", receipts.receipt, name="receipt"),
    path(TURN + "request", request_sent, name="request"),
    path("help/", help_pages.help_page, name="help"),
    path("help/<slug:slug>/", help_pages.help_page, name="help"),
    path("setup/", setup.setup, name="setup"),
    path("setup/search-model", setup.search_model, name="search-model"),
    path("setup/<slug:slug>/", setup.server, name="server"),
    path("setup/<slug:slug>/test", setup.server_test, name="server-test"),
    path("setup/<slug:slug>/prices", setup.server_prices, name="server-prices"),
    path("setup/<slug:slug>/disconnect", setup.server_disconnect, name="server-disconnect"),
    path("settings/", account.settings_page, name="settings"),
    path("settings/appearance/", account.appearance_page, name="appearance"),
    path("settings/memory/", memory.memory_page, name="memory"),
    path("settings/memory/switch", memory.memory_switch, name="memory-switch"),
    path("settings/memory/export", memory.memory_export, name="memory-export"),
    path("settings/memory/preferences", memory.preference_new, name="preference-new"),
    path("settings/memory/preferences/<uuid:preference_id>", memory.preference, name="preference"),
    path("settings/exchange/", exchange.exchange, name="exchange"),
    path("settings/exchange/import", imports.exchange_import, name="exchange-import"),
    path(IMPORT, imports.import_progress, name="import"),
    path(IMPORT + "stop", imports.import_stop, name="import-stop"),
    path(IMPORT + "delete", imports.import_delete, name="import-delete"),
    path("settings/exchange/everything", exchange.exchange_everything, name="exchange-everything"),
    path("settings/readings/", readings.access_log, name="readings"),
    path("settings/usage/", usage.usage_page, name="usage"),
    path("settings/keys/", api_keys.api_keys, name="api-keys"),
    path("settings/keys/<uuid:key_id>/revoke", api_keys.api_key_revoke, name="api-key-revoke"),
    path("settings/webhooks/", webhooks.webhooks, name="webhooks"),
    path(WEBHOOK, webhooks.webhook, name="webhook"),
    path(WEBHOOK + "events", webhooks.webhook_events, name="webhook-events"),
    path(WEBHOOK + "switch", webhooks.webhook_switch, name="webhook-switch"),
    path(WEBHOOK + "test", webhooks.webhook_test, name="webhook-test"),
    path(WEBHOOK + "delete", webhooks.webhook_delete, name="webhook-delete"),
    path(
        WEBHOOK + "deliveries/<uuid:delivery_id>/send", webhooks.webhook_send, name="webhook-send"
    ),
    path("settings/sessions/<slug:session>/end", account.session_end, name="session-end"),
]
