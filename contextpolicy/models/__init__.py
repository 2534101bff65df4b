"""The app's models, re-exported so that Django finds them."""

from contextpolicy.models.audit import (
    AuditEvent,
    LedgerHead,
    LedgerReader,
    LedgerVerification,
)
from contextpolicy.models.checkpoints import (
    LedgerCheckpoint,
    LedgerKey,
    LedgerLeaf,
    LedgerOrigin,
    LedgerTimestamp,
)
from contextpolicy.models.evaluations import EvaluatedTurn, Evaluation, VirtualCoverage
from contextpolicy.models.holds import LegalHold
from contextpolicy.models.policies import (
    ContextPolicy,
    EffectivePolicy,
    PolicyAssignment,
    PolicyVersion,
)
from contextpolicy.models.radius import BlastRadius
from contextpolicy.models.skills import GroupOwner, Skill, SkillFile
from contextpolicy.models.specs import ModelSpec
from contextpolicy.models.tools import ToolDefinition, ToolServer

__all__ = [
    "AuditEvent",
    "BlastRadius",
    "ContextPolicy",
    "EffectivePolicy",
    "EvaluatedTurn",
    "Evaluation",
    "GroupOwner",
    "LedgerCheckpoint",
    "LedgerHead",
    "LedgerKey",
    "LedgerLeaf",
    "LedgerOrigin",
    "LedgerReader",
    "LedgerTimestamp",
    "LedgerVerification",
    "LegalHold",
    "ModelSpec",
    "PolicyAssignment",
    "PolicyVersion",
    "Skill",
    "SkillFile",
    "ToolDefinition",
    "ToolServer",
    "VirtualCoverage",
]
