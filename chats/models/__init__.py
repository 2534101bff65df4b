"""The families of rows. Django finds models here, the one place of re-exports."""

from chats.models.chats import Branch, Chat, Folder, IdempotencyRecord, Message, Rendering
from chats.models.compactions import Compaction
from chats.models.people import ApiKey, LoginFailure, LoginLink
from chats.models.providers import ProviderAccount
from chats.models.search import SearchCount, SearchPlace, SearchText
from chats.models.state import ChatState
from chats.models.teams import Agent, Round, Team, TeamVersion
from chats.models.turns import PromptText, Receipt, Turn, WarmUp

__all__ = [
    "Agent",
    "ApiKey",
    "Branch",
    "Chat",
    "ChatState",
    "Compaction",
    "Folder",
    "IdempotencyRecord",
    "LoginFailure",
    "LoginLink",
    "Message",
    "PromptText",
    "ProviderAccount",
    "Receipt",
    "Rendering",
    "Round",
    "SearchCount",
    "SearchPlace",
    "SearchText",
    "Team",
    "TeamVersion",
    "Turn",
    "WarmUp",
]
