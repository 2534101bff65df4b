"""The fields of an effective policy. Each is declared once, in the module of its topic.

A declaration contains the name, type, default and bounds of a field, the rule that
combines several policies, and its texts: see `declaration.Declaration`. All other code
reads `FIELDS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from contextpolicy.engine.policy.fields.declaration import PolicyField, collect_fields
from contextpolicy.engine.policy.fields.history import HistoryFields
from contextpolicy.engine.policy.fields.limits import LimitFields
from contextpolicy.engine.policy.fields.memory import MemoryFields
from contextpolicy.engine.policy.fields.prompt import PromptFields
from contextpolicy.engine.policy.fields.summaries import SummaryFields


@dataclass(frozen=True, kw_only=True)
class PolicyFields(PromptFields, HistoryFields, SummaryFields, LimitFields, MemoryFields):
    """Every field of an effective policy.

    Lengths are characters (code points). `*_tokens` and `token_budget` are tokens. None means no
    limit, no mark, no trigger.
    """


# The fields by name, in the order of the form.
FIELDS: Mapping[str, PolicyField] = collect_fields(PolicyFields)
