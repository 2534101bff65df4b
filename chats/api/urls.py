"""URLs of the REST API, below /api/v1/. They have no trailing slash; ids are UUIDs."""

from django.urls import path, re_path, register_converter
from django.urls.converters import IntConverter, StringConverter

from chats.api.account import keys, memory, models, usage, webhooks
from chats.api.audit import audit, checkpoints, counts, holds, readings, retention
from chats.api.chats import (
    archive,
    branches,
    chats,
    compactions,
    context,
    erasures,
    exchange,
    files,
    folders,
    imports,
    message_actions,
    messages,
    policy,
    recent,
    requests_sent,
    search,
    state,
    summary_reviews,
    turns,
    ui_chats,
)
from chats.api.core import docs
from chats.api.core.base import raise_not_found
from chats.api.core.routers import Router, SingletonRouter
from chats.api.policies import (
    evaluations,
    policies,
    policy_assignments,
    policy_preview,
    policy_trial,
    policy_versions,
    radius,
)
from chats.api.teams import rosters, teams
from chats.streams.api import turn_events


class RoleId(StringConverter):
    """The id of a role in a team. It may contain letters of any script."""

    regex = "[^/]{1,80}"


class Number(IntConverter):
    """A number of up to nine digits, which every database can look up."""

    regex = "[1-9][0-9]{0,8}"


class ClientId(StringConverter):
    """The id that a client gave a chat."""

    regex = "[^/]{1,200}"


register_converter(RoleId, "role")
register_converter(ClientId, "client")
register_converter(Number, "number")

app_name = "api"
CHAT = "chats/<uuid:chat_id>"
TURN = f"{CHAT}/turns/<uuid:turn_id>"
RECEIPT = f"{TURN}/receipts/<uuid:receipt_id>/request"
ASKED = "audit/readings/asked/<uuid:asked_id>"
READ = "audit/receipts/<uuid:receipt_id>/request"
READ_SUMMARY = "audit/compactions/<uuid:compaction_id>/request"
MESSAGE = f"{CHAT}/messages/<uuid:message_id>"
HOLD = "holds/<uuid:hold_id>"
EVALUATION = "evaluations/<uuid:evaluation_id>"
RADIUS = "blast-radius/<uuid:radius_id>"
FILE = "files/<uuid:file_id>"
IMPORT = "imports/<uuid:import_id>"
WEBHOOK = "webhooks/<uuid:webhook_id>"
POLICY = "policies/<slug:slug>"
VERSION = f"{POLICY}/versions/<number:number>"
COMPACTION = f"{CHAT}/compactions/<uuid:compaction_id>"

router = Router()
router.register("keys", keys.KeyViewSet, "keys")
router.register("memory/preferences", memory.PreferenceViewSet, "preferences")
router.register("models", models.ModelViewSet, "models")
router.register("webhooks", webhooks.WebhookViewSet, "webhooks")
router.register(f"{WEBHOOK}/deliveries", webhooks.DeliveryViewSet, "webhooks_deliveries")
router.register(
    "policies/assignments", policy_assignments.AssignmentViewSet, "policies_assignments"
)
router.register(
    "policies/recommended-drafts", policies.RecommendedDraftViewSet, "policies_recommended"
)
router.register("policies", policies.PolicyViewSet, "policies")
router.register(f"{POLICY}/versions", policy_versions.VersionViewSet, "policies_versions")
router.register("blast-radius", radius.RadiusViewSet, "radii")
router.register("evaluations", evaluations.EvaluationViewSet, "evaluations")
router.register("holds", holds.HoldViewSet, "holds")
router.register("retention/runs", retention.RetentionRunViewSet, "retention_runs")
router.register("audit/events", audit.EventViewSet, "audit_events")
router.register("audit/checkpoints", checkpoints.CheckpointViewSet, "audit_checkpoints")
router.register("audit/readings", readings.ReadingViewSet, "audit_readings")
router.register("teams", rosters.RosterViewSet, "teams")
router.register(f"{CHAT}/rounds", rosters.RoundViewSet, "chats_rounds")
router.register(f"{CHAT}/team/messages", teams.TeamMessageViewSet, "chats_team_messages")

singletons = SingletonRouter()
singletons.register("memory", memory.MemoryViewSet, "memory")
singletons.register("usage", usage.UsageViewSet, "usage")
singletons.register("counts", counts.CountViewSet, "counts")
singletons.register(f"{CHAT}/balance", counts.ChatBalanceViewSet, "chats_balance")
singletons.register(f"{POLICY}/balance", counts.PolicyBalanceViewSet, "policies_balance")
singletons.register("policies", policy_preview.PreviewViewSet, "policies")
singletons.register("policies/preview", policy_trial.TrialViewSet, "policies_preview")
singletons.register("retention", retention.RetentionViewSet, "retention")
singletons.register("audit", audit.LedgerExportViewSet, "audit")
singletons.register("audit/proof", checkpoints.ChainProofViewSet, "audit_proof")
singletons.register(READ, readings.AuditedRequestViewSet, "audit_receipts_request")
singletons.register(
    READ_SUMMARY, readings.AuditedSummaryRequestViewSet, "audit_compactions_request"
)
singletons.register(f"{CHAT}/team", teams.TeamChatViewSet, "chats_team")
singletons.register(f"{CHAT}/team/snapshot", teams.SnapshotViewSet, "chats_team_snapshot")
singletons.register(f"{CHAT}/agents/<role:role_id>", rosters.AgentViewSet, "chats_agents")

urlpatterns = [
    path("chats", chats.Chats.as_view(), name="chats"),
    path(CHAT, chats.ChatDetail.as_view(), name="chat"),
    path(f"{CHAT}/restore", chats.RestoreChat.as_view(), name="chat-restore"),
    path("folders", folders.Folders.as_view(), name="folders"),
    path("folders/<uuid:folder_id>", folders.FolderDetail.as_view(), name="folder"),
    path("files", files.Files.as_view(), name="files"),
    path(FILE, files.FileDetail.as_view(), name="file"),
    path(f"{FILE}/content", files.FileContent.as_view(), name="file-content"),
    path("search", search.ChatSearch.as_view(), name="search"),
    path("messages/recent", recent.RecentMessages.as_view(), name="messages-recent"),
    path("ui-chats", ui_chats.UIChats.as_view(), name="ui-chats"),
    path("ui-chats/<client:client_id>", ui_chats.UIChatDetail.as_view(), name="ui-chat"),
    path(
        "ui-chats/<client:client_id>/stream",
        ui_chats.UIChatStream.as_view(),
        name="ui-chat-stream",
    ),
    path(f"{CHAT}/messages", messages.Messages.as_view(), name="messages"),
    path(f"{MESSAGE}/pin", message_actions.Pin.as_view(), name="message-pin"),
    path(f"{MESSAGE}/unpin", message_actions.Unpin.as_view(), name="message-unpin"),
    path(f"{MESSAGE}/exclude", message_actions.Exclude.as_view(), name="message-exclude"),
    path(f"{MESSAGE}/include", message_actions.Include.as_view(), name="message-include"),
    path(f"{MESSAGE}/keep", message_actions.Keep.as_view(), name="message-keep"),
    path(f"{MESSAGE}/edit", message_actions.Edit.as_view(), name="message-edit"),
    path(f"{MESSAGE}/regenerate", message_actions.Regenerate.as_view(), name="message-regenerate"),
    path(f"{MESSAGE}/branch", message_actions.BranchFrom.as_view(), name="message-branch"),
    path(f"{MESSAGE}/erase", erasures.EraseMessage.as_view(), name="message-erase"),
    path(f"{CHAT}/erase", erasures.EraseChat.as_view(), name="chat-erase"),
    path("erasures", erasures.PendingErasures.as_view(), name="erasures"),
    path("erasures/<uuid:erasure_id>", erasures.PendingErasureDetail.as_view(), name="erasure"),
    path(f"{CHAT}/archive", archive.Archive.as_view(), name="archive"),
    path(f"{CHAT}/pins", message_actions.Pins.as_view(), name="pins"),
    path(TURN, turns.TurnDetail.as_view(), name="turn"),
    path(f"{TURN}/receipts", context.TurnReceipts.as_view(), name="turn-receipts"),
    path(RECEIPT, requests_sent.SentRequest.as_view(), name="request-sent"),
    path(f"{RECEIPT}/file", requests_sent.SentRequestFile.as_view(), name="request-file"),
    path(f"{TURN}/stop", turns.StopTurn.as_view(), name="turn-stop"),
    path(f"{TURN}/retry", turns.RetryTurn.as_view(), name="turn-retry"),
    path(f"{TURN}/continue", turns.ContinueTurn.as_view(), name="turn-continue"),
    path(f"{TURN}/events", turn_events, name="turn-events"),
    path(f"{CHAT}/compactions", compactions.Compactions.as_view(), name="compactions"),
    path(f"{CHAT}/compactions/resume", compactions.Resume.as_view(), name="compactions-resume"),
    path(f"{CHAT}/compactions/compare", compactions.Compare.as_view(), name="compactions-compare"),
    path(COMPACTION, compactions.CompactionDetail.as_view(), name="compaction"),
    path(f"{COMPACTION}/request", requests_sent.SentSummaryRequest.as_view(), name="summary-asked"),
    path(
        f"{COMPACTION}/request/file",
        requests_sent.SentSummaryRequestFile.as_view(),
        name="summary-asked-file",
    ),
    path(f"{COMPACTION}/cancel", compactions.Cancel.as_view(), name="compaction-cancel"),
    path(f"{COMPACTION}/undo", compactions.Undo.as_view(), name="compaction-undo"),
    path(f"{COMPACTION}/redo", compactions.Redo.as_view(), name="compaction-redo"),
    path(f"{COMPACTION}/rerun", compactions.Rerun.as_view(), name="compaction-rerun"),
    path(f"{COMPACTION}/revise", compactions.Revise.as_view(), name="compaction-revise"),
    path(
        "summaries/<uuid:compaction_id>/review",
        summary_reviews.ReviewSummary.as_view(),
        name="summary-review",
    ),
    path(f"{COMPACTION}/approve", compactions.Approve.as_view(), name="compaction-approve"),
    path(f"{COMPACTION}/reject", compactions.Reject.as_view(), name="compaction-reject"),
    path(f"{CHAT}/branches", branches.Branches.as_view(), name="branches"),
    path(
        f"{CHAT}/branches/<uuid:branch_id>/choose",
        branches.ChooseBranch.as_view(),
        name="branch-choose",
    ),
    path(f"{CHAT}/export", exchange.ChatExport.as_view(), name="export"),
    path("imports", imports.Imports.as_view(), name="imports"),
    path("imports/conditions", imports.ImportConditions.as_view(), name="import-conditions"),
    path(IMPORT, imports.ImportDetail.as_view(), name="import"),
    path(f"{IMPORT}/stop", imports.StopImport.as_view(), name="import-stop"),
    path(f"{IMPORT}/chats", imports.ImportOutcomes.as_view(), name="import-chats"),
    path("export", exchange.ExportAll.as_view(), name="export-all"),
    path(f"{CHAT}/context", context.Context.as_view(), name="context"),
    path(f"{CHAT}/policy", policy.ChatPolicy.as_view(), name="policy"),
    path(f"{CHAT}/policy/explained", policy.ExplainedChatPolicy.as_view(), name="policy-explained"),
    path("policies/effective", policy.ExplainedPolicy.as_view(), name="policies-effective"),
    path(f"{CHAT}/state/versions", state.StateVersions.as_view(), name="state-versions"),
    path(f"{CHAT}/state/restore", state.RestoreState.as_view(), name="state-restore"),
    path(f"{CHAT}/state", state.StateEndpoint.as_view(), name="state"),
    path("schema", docs.Schema.as_view(), name="schema"),
    path("docs", docs.docs_page, name="docs"),
    path("docs.js", docs.docs_script, name="docs-script"),
    *singletons.urls,
    *router.urls,
    # Unknown addresses below this prefix get a JSON error.
    re_path("", raise_not_found),
]
