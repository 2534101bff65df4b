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

singletons = SingletonRouter()
singletons.register("memory", memory.MemoryViewSet, "memory")
singletons.register("usage", usage.UsageViewSet, "usage")

urlpatterns = [
    *router.urls,
    *singletons.urls,
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
    path("counts", counts.InstallationCounts.as_view(), name="counts"),
    path(f"{CHAT}/balance", counts.ChatBalance.as_view(), name="chat-balance"),
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
    path("policies/preview", policy_preview.PolicyPreview.as_view(), name="policies-preview"),
    path("policies/preview/sample", policy_preview.PolicySample.as_view(), name="policies-sample"),
    path("policies/preview/trial", policy_trial.PolicyTrial.as_view(), name="policies-trial"),
    path("policies/effective", policy.ExplainedPolicy.as_view(), name="policies-effective"),
    path("policies", policies.Policies.as_view(), name="policies"),
    path("policies/lint", policies.LintPolicy.as_view(), name="policies-lint"),
    path(
        "policies/recommended-drafts",
        policies.RecommendedDrafts.as_view(),
        name="policies-recommended",
    ),
    path("policies/import", policies.ImportPolicy.as_view(), name="policies-import"),
    path("policies/assignments", policy_assignments.Assignments.as_view(), name="assignments"),
    path(
        "policies/assignments/<number:assignment_id>",
        policy_assignments.AssignmentDetail.as_view(),
        name="assignment",
    ),
    path("blast-radius", radius.RadiusList.as_view(), name="radii"),
    path(RADIUS, radius.RadiusDetail.as_view(), name="radius"),
    path(f"{RADIUS}/stop", radius.StopRadius.as_view(), name="radius-stop"),
    path(f"{RADIUS}/resume", radius.ResumeRadius.as_view(), name="radius-resume"),
    path("evaluations", evaluations.Evaluations.as_view(), name="evaluations"),
    path(EVALUATION, evaluations.EvaluationDetail.as_view(), name="evaluation"),
    path(f"{EVALUATION}/end", evaluations.EndEvaluation.as_view(), name="evaluation-end"),
    path(
        f"{EVALUATION}/promote",
        evaluations.PromoteEvaluation.as_view(),
        name="evaluation-promote",
    ),
    path(POLICY, policies.PolicyDetail.as_view(), name="one-policy"),
    path(f"{POLICY}/balance", counts.PolicyBalance.as_view(), name="policy-balance"),
    path(f"{POLICY}/export", policies.ExportPolicy.as_view(), name="policy-export"),
    path(f"{POLICY}/versions", policy_versions.PolicyVersions.as_view(), name="policy-versions"),
    path(VERSION, policy_versions.PolicyVersionDetail.as_view(), name="policy-version"),
    path(f"{VERSION}/activate", policy_versions.ActivateVersion.as_view(), name="policy-activate"),
    path(f"{VERSION}/restore", policy_versions.RestoreVersion.as_view(), name="policy-restore"),
    path(f"{CHAT}/state/versions", state.StateVersions.as_view(), name="state-versions"),
    path(f"{CHAT}/state/restore", state.RestoreState.as_view(), name="state-restore"),
    path(f"{CHAT}/state", state.StateEndpoint.as_view(), name="state"),
    path(f"{CHAT}/team", teams.TeamOfChat.as_view(), name="team"),
    path(f"{CHAT}/team/messages", teams.TeamMessages.as_view(), name="team-messages"),
    path(f"{CHAT}/team/context", teams.TeamContext.as_view(), name="team-context"),
    path(f"{CHAT}/team/prompt", teams.TeamPrompt.as_view(), name="team-prompt"),
    path(f"{CHAT}/team/snapshot", teams.TeamSnapshot.as_view(), name="team-snapshot"),
    path(f"{CHAT}/team/clear", teams.ClearTeam.as_view(), name="team-clear"),
    path(
        f"{CHAT}/agents/<role:role_id>/context", rosters.AgentContextDetail.as_view(), name="agent"
    ),
    path(f"{CHAT}/rounds", rosters.Rounds.as_view(), name="rounds"),
    path(f"{CHAT}/rounds/go-on", rosters.ContinueRound.as_view(), name="go-on"),
    path("teams", rosters.Rosters.as_view(), name="rosters"),
    path("teams/<uuid:team_id>", rosters.RosterDetail.as_view(), name="roster"),
    path("teams/<uuid:team_id>/copy", rosters.CopyRoster.as_view(), name="roster-copy"),
    path("holds", holds.Holds.as_view(), name="holds"),
    path(HOLD, holds.HoldDetail.as_view(), name="hold"),
    path(f"{HOLD}/release", holds.ReleaseHold.as_view(), name="hold-release"),
    path("retention", retention.RetentionForecast.as_view(), name="retention"),
    path("retention/runs", retention.RetentionRuns.as_view(), name="retention-runs"),
    path(
        "retention/runs/<uuid:run_id>/certificate",
        retention.RetentionCertificates.as_view(),
        name="retention-certificate",
    ),
    path("audit/events", audit.Events.as_view(), name="events"),
    path("audit/export", audit.LedgerExport.as_view(), name="ledger-export"),
    path("audit/checkpoints", checkpoints.Checkpoints.as_view(), name="checkpoints"),
    path("audit/proof", checkpoints.ChainProof.as_view(), name="chain-proof"),
    path("audit/readings", readings.Readings.as_view(), name="readings"),
    path("audit/readings/asked", readings.ReadingRequests.as_view(), name="asked-readings"),
    path(f"{ASKED}/grant", readings.GrantReading.as_view(), name="grant-reading"),
    path(f"{ASKED}/refuse", readings.RefuseReading.as_view(), name="refuse-reading"),
    path("audit/readings/<uuid:chat_id>", readings.ReadingDetail.as_view(), name="reading"),
    path(READ, readings.ReadRequest.as_view(), name="read-request"),
    path(f"{READ}/file", readings.ReadRequestFile.as_view(), name="read-request-file"),
    path(READ_SUMMARY, readings.ReadSummaryRequest.as_view(), name="read-summary-request"),
    path(
        f"{READ_SUMMARY}/file",
        readings.ReadSummaryRequestFile.as_view(),
        name="read-summary-request-file",
    ),
    path("schema", docs.Schema.as_view(), name="schema"),
    path("docs", docs.docs_page, name="docs"),
    path("docs.js", docs.docs_script, name="docs-script"),
    # Unknown addresses below this prefix get a JSON error.
    re_path("", raise_not_found),
]
