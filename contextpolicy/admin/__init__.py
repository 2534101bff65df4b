"""What administrators see of policies and of the ledger."""

from contextpolicy.admin.assignments import PolicyAssignmentAdmin
from contextpolicy.admin.ledger import AuditEventAdmin, EffectivePolicyAdmin
from contextpolicy.admin.policies import ContextPolicyAdmin
from contextpolicy.admin.site import site
from contextpolicy.models import AuditEvent, ContextPolicy, EffectivePolicy, PolicyAssignment

# The site with every page registered, for `project.urls`.
__all__ = ["site"]

site.register(ContextPolicy, ContextPolicyAdmin)
site.register(PolicyAssignment, PolicyAssignmentAdmin)
site.register(EffectivePolicy, EffectivePolicyAdmin)
site.register(AuditEvent, AuditEventAdmin)
