"""The families of rows. Django finds models here, the one place of re-exports."""

from chats.models.chats import (
    Branch,
    Chat,
    Folder,
    IdempotencyRecord,
    Message,
    MessageImage,
    Rendering,
)
from chats.models.compactions import Compaction
from chats.models.counts import CompactionBalance, DailyCount
from chats.models.exchange import FileImport, FilePiece, ImportedChat, ImportOutcome
from chats.models.gateway import GatewayChat, GatewayNode, PassedOn
from chats.models.jobs import SkippedRow
from chats.models.memory import (
    ForgottenPreference,
    MemorySettings,
    Preference,
    PreferenceEvidence,
    PreferenceReading,
)
from chats.models.people import AccountSettings, ApiKey, LoginFailure, LoginLink
from chats.models.providers import ProviderAccount
from chats.models.retention import ErasureWish, RetentionEntry, RetentionRun
from chats.models.search import SearchCount, SearchPlace, SearchText
from chats.models.state import ChatState
from chats.models.teams import Agent, Round, Team, TeamVersion
from chats.models.turns import PromptText, Receipt, Turn, TurnReference, WarmUp
from chats.models.vectors import TextVector, VectorSpace
from chats.models.webhooks import Webhook, WebhookDelivery

__all__ = [
    "AccountSettings",
    "Agent",
    "ApiKey",
    "Branch",
    "Chat",
    "ChatState",
    "Compaction",
    "CompactionBalance",
    "DailyCount",
    "ErasureWish",
    "FileImport",
    "FilePiece",
    "Folder",
    "ForgottenPreference",
    "GatewayChat",
    "GatewayNode",
    "IdempotencyRecord",
    "ImportOutcome",
    "ImportedChat",
    "LoginFailure",
    "LoginLink",
    "MemorySettings",
    "Message",
    "MessageImage",
    "PassedOn",
    "Preference",
    "PreferenceEvidence",
    "PreferenceReading",
    "PromptText",
    "ProviderAccount",
    "Receipt",
    "Rendering",
    "RetentionEntry",
    "RetentionRun",
    "Round",
    "SearchCount",
    "SearchPlace",
    "SearchText",
    "SkippedRow",
    "Team",
    "TeamVersion",
    "TextVector",
    "Turn",
    "TurnReference",
    "VectorSpace",
    "WarmUp",
    "Webhook",
    "WebhookDelivery",
]
