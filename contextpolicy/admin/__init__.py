"""The admin pages of policies, of legal holds and of the audit log."""

from contextpolicy.admin.assignments import PolicyAssignmentAdmin
from contextpolicy.admin.holds import LegalHoldAdmin
from contextpolicy.admin.ledger import AuditEventAdmin, EffectivePolicyAdmin
from contextpolicy.admin.policies import ContextPolicyAdmin
from contextpolicy.admin.site import site
from contextpolicy.admin.skills import SkillAdmin
from contextpolicy.models import (
    AuditEvent,
    ContextPolicy,
    EffectivePolicy,
    LegalHold,
    PolicyAssignment,
    Skill,
)

# `project.urls` imports the site from here, after all pages are registered.
__all__ = ["site"]

site.register(ContextPolicy, ContextPolicyAdmin)
site.register(PolicyAssignment, PolicyAssignmentAdmin)
site.register(Skill, SkillAdmin)
site.register(LegalHold, LegalHoldAdmin)
site.register(EffectivePolicy, EffectivePolicyAdmin)
site.register(AuditEvent, AuditEventAdmin)
