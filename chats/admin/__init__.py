"""The admin site: the product's models and their pages."""

from django.contrib.auth.models import Group, User

from chats.admin.audit.reading import ReadReceiptAdmin
from chats.admin.audit.records import TurnAdmin
from chats.admin.audit.verify import VerifiedLedgerAdmin
from chats.admin.compactions.compactions import CompactionAdmin
from chats.admin.dashboard.dashboard import DashboardAdmin
from chats.admin.people import PeopleGroupAdmin, PersonAdmin
from chats.admin.policies.assignments import PolicyAssignmentAdmin
from chats.admin.policies.editor_preview import PreviewedPolicyAdmin
from chats.admin.policies.effective import ExplainedPolicyAdmin
from chats.admin.policies.evaluations import EvaluationAdmin
from chats.admin.policies.radius import BlastRadiusAdmin
from chats.admin.policies.skills import SkillAdmin
from chats.admin.providers import ModelSpecAdmin, ProviderAccountAdmin
from chats.admin.retention.holds import LegalHoldAdmin
from chats.admin.retention.kept_texts import KeptTextAdmin
from chats.admin.retention.runs import RetentionRunAdmin
from chats.admin.site import site
from chats.admin.teams import TeamAdmin
from chats.admin.tools import ToolDefinitionAdmin, ToolServerAdmin
from chats.models import (
    Compaction,
    DailyCount,
    KeptText,
    ProviderAccount,
    Receipt,
    RetentionRun,
    Team,
    Turn,
)
from contextpolicy.models import (
    AuditEvent,
    BlastRadius,
    ContextPolicy,
    EffectivePolicy,
    Evaluation,
    LegalHold,
    ModelSpec,
    PolicyAssignment,
    Skill,
    ToolDefinition,
    ToolServer,
)

# `project.urls` imports the site from here, so every page is registered.
__all__ = ["site"]

site.register(ContextPolicy, PreviewedPolicyAdmin)
site.register(PolicyAssignment, PolicyAssignmentAdmin)
site.register(EffectivePolicy, ExplainedPolicyAdmin)
site.register(BlastRadius, BlastRadiusAdmin)
site.register(Evaluation, EvaluationAdmin)
site.register(Skill, SkillAdmin)
site.register(ProviderAccount, ProviderAccountAdmin)
site.register(ModelSpec, ModelSpecAdmin)
site.register(ToolServer, ToolServerAdmin)
site.register(ToolDefinition, ToolDefinitionAdmin)
site.register(Turn, TurnAdmin)
site.register(Receipt, ReadReceiptAdmin)
site.register(Compaction, CompactionAdmin)
site.register(DailyCount, DashboardAdmin)
site.register(Team, TeamAdmin)
site.register(AuditEvent, VerifiedLedgerAdmin)
site.register(LegalHold, LegalHoldAdmin)
site.register(RetentionRun, RetentionRunAdmin)
site.register(KeptText, KeptTextAdmin)
site.register(User, PersonAdmin)
site.register(Group, PeopleGroupAdmin)
