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
    images,
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
    skills,
)
from chats.api.teams import rosters, teams
from chats.streams.api import turn_events


class RoleId(StringConverter):
    """The id of a role in a team, which may contain letters of any script."""

    regex = "[^/]{1,80}"


class Number(IntConverter):
    """A number of up to nine digits, which every database can look up."""

    regex = "[1-9][0-9]{0,8}"


class ClientId(StringConverter):
    """The id that a client assigned to a chat. It may contain slashes."""

    regex = ".{1,200}"


class ImageHash(StringConverter):
    """The SHA-256 of an image."""

    regex = "[0-9a-f]{64}"


register_converter(RoleId, "role")
register_converter(ImageHash, "image")
register_converter(ClientId, "client")
register_converter(Number, "number")

app_name = "api"
CHAT = "chats/<uuid:chat_id>"
MESSAGE = f"{CHAT}/messages/<uuid:message_id>"
TURN = f"{CHAT}/turns/<uuid:turn_id>"
RECEIPT = f"{TURN}/receipts/<uuid:receipt_id>"
COMPACTION = f"{CHAT}/compactions/<uuid:compaction_id>"
UI_CHAT = "ui-chats/<client:client_id>"
POLICY = "policies/<slug:slug>"
AUDITED = "audit/receipts/<uuid:receipt_id>/request"
AUDITED_SUMMARY = "audit/compactions/<uuid:compaction_id>/request"

# The last argument is the first part of the operation ids in the OpenAPI schema.
singletons = SingletonRouter()
singletons.register("search", search.SearchViewSet, "search")
singletons.register("memory", memory.MemoryViewSet, "memory")
singletons.register("messages/recent", recent.RecentMessageViewSet, "messages_recent")
singletons.register("ui-chats", ui_chats.UIChatsViewSet, "ui_chats")
# First: an id may contain slashes.
singletons.register(f"{UI_CHAT}/stream", ui_chats.UIChatStreamViewSet, "ui_chats_stream")
singletons.register(UI_CHAT, ui_chats.UIChatViewSet, "ui_chats_messages")
singletons.register("usage", usage.UsageViewSet, "usage")
singletons.register("counts", counts.CountViewSet, "counts")
singletons.register("export", exchange.ExportViewSet, "export")
singletons.register(f"{CHAT}/archive", archive.ArchiveViewSet, "chats_archive")
singletons.register(f"{CHAT}/balance", counts.ChatBalanceViewSet, "chats_balance")
singletons.register(f"{CHAT}/context", context.ContextViewSet, "chats_context")
singletons.register(f"{CHAT}/erase", erasures.EraseChatViewSet, "chats_erase")
singletons.register(f"{CHAT}/export", exchange.ChatExportViewSet, "chats_export")
singletons.register(f"{CHAT}/pins", message_actions.PinsViewSet, "chats_pins")
singletons.register(f"{CHAT}/policy", policy.ChatPolicyViewSet, "chats_policy")
singletons.register(f"{CHAT}/state", state.StateViewSet, "chats_state")
singletons.register(f"{CHAT}/team", teams.TeamChatViewSet, "chats_team")
singletons.register(f"{CHAT}/team/snapshot", teams.SnapshotViewSet, "chats_team_snapshot")
singletons.register(f"{CHAT}/agents/<role:role_id>", rosters.AgentViewSet, "chats_agents")
singletons.register(MESSAGE, message_actions.MessageActionViewSet, "chats_messages")
singletons.register(
    f"{MESSAGE}/images/<image:sha256>", images.MessageImageViewSet, "chats_messages_images"
)
singletons.register(f"{MESSAGE}/erase", erasures.EraseMessageViewSet, "chats_messages_erase")
singletons.register(TURN, context.ReceiptViewSet, "chats_turns")
singletons.register(f"{RECEIPT}/request", requests_sent.SentRequestViewSet, "chats_turns_request")
singletons.register(
    f"{COMPACTION}/request", requests_sent.SummaryRequestViewSet, "chats_compactions_request"
)
singletons.register("summaries/<uuid:compaction_id>", summary_reviews.ReviewViewSet, "summaries")
singletons.register("policies", policy_preview.PreviewViewSet, "policies")
singletons.register("policies/preview", policy_trial.TrialViewSet, "policies_preview")
singletons.register("policies/effective", policy.ExplainedPolicyViewSet, "policies_effective")
singletons.register(f"{POLICY}/balance", counts.PolicyBalanceViewSet, "policies_balance")
singletons.register("retention", retention.RetentionViewSet, "retention")
singletons.register("audit", audit.LedgerExportViewSet, "audit")
singletons.register("audit/proof", checkpoints.ChainProofViewSet, "audit_proof")
singletons.register(AUDITED, readings.AuditedRequestViewSet, "audit_receipts_request")
singletons.register(
    AUDITED_SUMMARY, readings.AuditedSummaryRequestViewSet, "audit_compactions_request"
)

router = Router()
router.register("chats", chats.ChatViewSet, "chats")
router.register(f"{CHAT}/messages", messages.MessageViewSet, "chats_messages")
router.register(f"{CHAT}/turns", turns.TurnViewSet, "chats_turns")
router.register(f"{CHAT}/branches", branches.BranchViewSet, "chats_branches")
router.register(f"{CHAT}/compactions", compactions.CompactionViewSet, "chats_compactions")
router.register(f"{CHAT}/team/messages", teams.TeamMessageViewSet, "chats_team_messages")
router.register(f"{CHAT}/rounds", rosters.RoundViewSet, "chats_rounds")
router.register("folders", folders.FolderViewSet, "folders")
router.register("files", files.FileViewSet, "files")
router.register("imports", imports.ImportViewSet, "imports")
router.register("erasures", erasures.PendingErasureViewSet, "erasures")
router.register("teams", rosters.RosterViewSet, "teams")
router.register("memory/preferences", memory.PreferenceViewSet, "preferences")
router.register("models", models.ModelViewSet, "models")
router.register("keys", keys.KeyViewSet, "keys")
router.register("webhooks", webhooks.WebhookViewSet, "webhooks")
router.register(
    "webhooks/<uuid:webhook_id>/deliveries", webhooks.DeliveryViewSet, "webhooks_deliveries"
)
router.register(
    "policies/assignments", policy_assignments.AssignmentViewSet, "policies_assignments"
)
router.register(
    "policies/recommended-drafts", policies.RecommendedDraftViewSet, "policies_recommended"
)
router.register("policies", policies.PolicyViewSet, "policies")
router.register(f"{POLICY}/versions", policy_versions.VersionViewSet, "policies_versions")
router.register("skills", skills.SkillViewSet, "skills")
router.register("blast-radius", radius.RadiusViewSet, "radii")
router.register("evaluations", evaluations.EvaluationViewSet, "evaluations")
router.register("holds", holds.HoldViewSet, "holds")
router.register("retention/runs", retention.RetentionRunViewSet, "retention_runs")
router.register("audit/events", audit.EventViewSet, "audit_events")
router.register("audit/checkpoints", checkpoints.CheckpointViewSet, "audit_checkpoints")
router.register("audit/readings", readings.ReadingViewSet, "audit_readings")

urlpatterns = [
    # Singletons first: some of their addresses would also match the slug of a policy.
    *singletons.urls,
    *router.urls,
    path(f"{TURN}/events", turn_events, name="turn-events"),
    path("schema", docs.SchemaViewSet.as_view({"get": "retrieve"}), name="schema"),
    path("docs", docs.docs_page, name="docs"),
    path("docs.js", docs.docs_script, name="docs-script"),
    # Unknown addresses below this prefix get a JSON error.
    re_path("", raise_not_found),
]
