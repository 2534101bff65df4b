"""The families of rows. Django finds models here, the one place of re-exports."""

from contextpolicy.models.audit import AuditEvent, LedgerHead, LedgerVerification
from contextpolicy.models.policies import (
    ContextPolicy,
    EffectivePolicy,
    PolicyAssignment,
    PolicyVersion,
)
from contextpolicy.models.specs import ModelSpec

__all__ = [
    "AuditEvent",
    "ContextPolicy",
    "EffectivePolicy",
    "LedgerHead",
    "LedgerVerification",
    "ModelSpec",
    "PolicyAssignment",
    "PolicyVersion",
]
