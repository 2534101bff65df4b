"""Models of the chats app, re-exported so that Django finds them."""

from chats.models.chats import (
    Branch,
    Chat,
    Folder,
    IdempotencyRecord,
    Message,
    MessageImage,
    OwnedImage,
    Rendering,
)
from chats.models.compactions import Compaction
from chats.models.counts import CompactionBalance, DailyCount
from chats.models.exchange import FileImport, FilePiece, ImportedChat, ImportOutcome
from chats.models.files import FileChunk, FileExcerpt, FileRemoval, MessageFile, StoredFile
from chats.models.gateway import (
    DeletedResponse,
    GatewayChat,
    GatewayNode,
    PassedOn,
    ReplyLogprobs,
)
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
from chats.models.quotas import QuotaUsage
from chats.models.retention import KeptText, PendingErasure, RetentionEntry, RetentionRun
from chats.models.search import SearchCount, SearchPlace, SearchText
from chats.models.state import ChatState
from chats.models.teams import Agent, Round, Team, TeamVersion
from chats.models.tool_calls import ToolCall, ToolConsent, ToolStep
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
    "DeletedResponse",
    "FileChunk",
    "FileExcerpt",
    "FileImport",
    "FilePiece",
    "FileRemoval",
    "Folder",
    "ForgottenPreference",
    "GatewayChat",
    "GatewayNode",
    "IdempotencyRecord",
    "ImportOutcome",
    "ImportedChat",
    "KeptText",
    "LoginFailure",
    "LoginLink",
    "MemorySettings",
    "Message",
    "MessageFile",
    "MessageImage",
    "OwnedImage",
    "PassedOn",
    "PendingErasure",
    "Preference",
    "PreferenceEvidence",
    "PreferenceReading",
    "PromptText",
    "ProviderAccount",
    "QuotaUsage",
    "Receipt",
    "Rendering",
    "ReplyLogprobs",
    "RetentionEntry",
    "RetentionRun",
    "Round",
    "SearchCount",
    "SearchPlace",
    "SearchText",
    "SkippedRow",
    "StoredFile",
    "Team",
    "TeamVersion",
    "TextVector",
    "ToolCall",
    "ToolConsent",
    "ToolStep",
    "Turn",
    "TurnReference",
    "VectorSpace",
    "WarmUp",
    "Webhook",
    "WebhookDelivery",
]
