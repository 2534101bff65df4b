"""Admin pages for providers, models, people, teams and pipeline rows."""

from django.contrib.auth.models import Group, User

from chats.admin.compactions import CompactionAdmin
from chats.admin.dashboard import DashboardAdmin
from chats.admin.effective import ExplainedPolicyAdmin
from chats.admin.evaluations import EvaluationAdmin
from chats.admin.kept_texts import KeptTextAdmin
from chats.admin.ledger import VerifiedLedgerAdmin
from chats.admin.people import PeopleGroupAdmin, PersonAdmin
from chats.admin.policies import PreviewedPolicyAdmin
from chats.admin.providers import ModelSpecAdmin, ProviderAccountAdmin
from chats.admin.radius import BlastRadiusAdmin
from chats.admin.reading import ReadReceiptAdmin
from chats.admin.records import TurnAdmin
from chats.admin.retention import RetentionRunAdmin
from chats.admin.teams import TeamAdmin
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
from contextpolicy.admin import site
from contextpolicy.models import (
    AuditEvent,
    BlastRadius,
    ContextPolicy,
    EffectivePolicy,
    Evaluation,
    ModelSpec,
)

# `project.urls` imports the site from here, so every page is registered.
__all__ = ["site"]

site.register(ProviderAccount, ProviderAccountAdmin)
site.register(ModelSpec, ModelSpecAdmin)
site.register(Turn, TurnAdmin)
site.register(Receipt, ReadReceiptAdmin)
site.register(Compaction, CompactionAdmin)
site.register(DailyCount, DashboardAdmin)
site.register(Team, TeamAdmin)
site.register(RetentionRun, RetentionRunAdmin)
site.register(KeptText, KeptTextAdmin)
site.register(BlastRadius, BlastRadiusAdmin)
site.register(Evaluation, EvaluationAdmin)
site.register(User, PersonAdmin)
site.register(Group, PeopleGroupAdmin)
# Replace the base pages, which lack background verification, chats and agents.
site.unregister([AuditEvent, ContextPolicy, EffectivePolicy])
site.register(ContextPolicy, PreviewedPolicyAdmin)
site.register(EffectivePolicy, ExplainedPolicyAdmin)
site.register(AuditEvent, VerifiedLedgerAdmin)
