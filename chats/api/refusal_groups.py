"""Refusals that several API operations share, for `operation_refusals.py`."""

from dataclasses import dataclass

from chats.actions import (
    branching,
    marks,
    organising,
    running_replies,
    skills,
    state_edits,
)
from chats.compaction.people import summary_permissions
from chats.memory.preferences import memory_settings, preference_texts, preferences
from chats.people.sessions import ReauthenticationRequired
from chats.prompt import file_check, model_choice, turn_question
from chats.prompt.next_context import TeamRepliesHere
from chats.record import audit_access, message_text, quotas
from chats.record.holds import UnderHold
from chats.record.states import StateChanged
from chats.teams import conversation
from chats.turns import start
from chats.webhooks import managing
from contextpolicy import blast, imports, plugins, policy_refusals, skill_files, two_persons
from contextpolicy import skills as contextpolicy_skills


@dataclass(frozen=True, slots=True)
class Case:
    """A refusal with its status, code and condition, for classes with several codes."""

    status: int
    code: str
    condition: str


# A class with `code`, and a docstring whose first paragraph is the condition.
Foreseen = type[Exception] | Case

BAD_VALUE = Case(400, "invalid_value", "A parameter has an invalid value; `param` names it.")
MODEL = (
    model_choice.NoModel,
    model_choice.ModelNotAllowed,
    model_choice.PolicyRefused,
)
SUMMARY = (*MODEL, summary_permissions.NotAllowedByPolicy)
MOST_MESSAGES = Case(
    429,
    "rate_limit_exceeded",
    "You sent more than 30 messages within a minute (the default of `MESSAGES_PER_MINUTE`) with "
    "all your API keys and sessions together.",
)
QUEUED = (
    start.ChatBusy,
    start.ChatFull,
    start.TooManyTurns,
    start.TooManyTurnsOfKey,
    quotas.QuotaExceeded,
    MOST_MESSAGES,
)
REPLY = (*MODEL, model_choice.ModelUnavailable, *QUEUED)
TEXT = (message_text.MessageEmpty, message_text.MessageTooLong, message_text.InvalidCharacter)
PROMPT = (
    model_choice.NoModel,
    model_choice.ModelNotAllowed,
    file_check.FilesNotAllowedForModel,
    # A prompt that cannot be composed has this code too.
    Case(
        409,
        model_choice.PolicyRefused.code,
        "The effective policies contradict each other or do not fit the model, or the system text "
        "and the tools exceed the prompt limit. The error message gives the numbers.",
    ),
    TeamRepliesHere,
    Case(409, "message_too_large", "The question does not fit into the prompt limit."),
    Case(409, "turn_too_large", "The newest tool results do not fit into the prompt limit."),
)
BRANCH = (branching.StillWaiting, branching.MessageGone, branching.TooManyBranches)
QUESTION = (turn_question.QuestionErased, turn_question.QuestionExcluded)
MARK = (marks.NotTakenUp, marks.MessageErased)
STATE = (*MODEL, state_edits.NoStateKept)
STATE_EDIT = (*STATE, StateChanged, state_edits.StateInvalid, state_edits.StateTooLarge)
AGENT = (conversation.InvalidWindow, conversation.InstructionTooLong)
UNSTORABLE = message_text.InvalidCharacter
READING = audit_access.ReadingNotOpen
ERASE = (
    ReauthenticationRequired,
    running_replies.StillAnswering,
    running_replies.StillReferred,
    UnderHold,
)
FOLDER = (organising.FolderExists, organising.InvalidFolderName, organising.FolderNameTooLong)
PREFERENCE = (
    memory_settings.NoConsent,
    preference_texts.PreferenceInvalid,
    preferences.TooManyPreferences,
)
CONTROLS = (two_persons.SecondPersonNeeded, blast.BlastRadiusNeeded)
PUBLISH = (policy_refusals.PolicyProblems, policy_refusals.PolicyChangedMeanwhile, *CONTROLS)
NEW_POLICY = (
    policy_refusals.PolicyProblems,
    policy_refusals.PolicyNameTaken,
    imports.PolicyExists,
    imports.ReservedName,
    plugins.MalformedImport,
    UNSTORABLE,
)
SKILL = (
    skills.SkillModeRefused,
    skills.SkillNameInvalid,
    skills.SkillTextMissing,
    contextpolicy_skills.SkillTooLong,
    contextpolicy_skills.SkillNameTaken,
    contextpolicy_skills.SkillDescriptionInvalid,
    contextpolicy_skills.TooManySkills,
    *skill_files.REFUSALS,
    UNSTORABLE,
)
WEBHOOK = (managing.WebhookAddressRefused, managing.UnknownEvent, managing.EventNotAllowed)
