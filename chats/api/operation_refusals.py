"""The refusals of each API operation, in addition to those of every request.

`describe_responses.py` writes them into the OpenAPI schema. A test fails if an operation refuses a
request with an unlisted code.
"""

from collections.abc import Mapping

from chats.actions import (
    branching,
    deletion,
    lifecycle,
    marks,
    organising,
    searching,
    skills,
    state_edits,
    system_texts,
)
from chats.api.audit.audit import InvalidSearch
from chats.api.chats.files import UploadMalformed
from chats.api.chats.imports import ImportInForm
from chats.api.core.pages import InvalidCursor
from chats.api.refusal_groups import (
    AGENT,
    BAD_VALUE,
    BRANCH,
    CONTROLS,
    ERASE,
    FOLDER,
    MARK,
    MODEL,
    NEW_POLICY,
    PREFERENCE,
    PROMPT,
    PUBLISH,
    QUEUED,
    READING,
    REPLY,
    SKILL,
    STATE,
    STATE_EDIT,
    SUMMARY,
    TEXT,
    UNSTORABLE,
    WEBHOOK,
    Case,
    Foreseen,
)
from chats.checkpoints.files import NoProof
from chats.compaction import reconstruction
from chats.compaction.people import approve, controls, revise, summary_permissions, undo
from chats.exchange import skill_folders, ui_chats, ui_requests, upload
from chats.exchange.ui_actions import UIMessageNotFound
from chats.files import attach, inline
from chats.files import uploads as file_uploads
from chats.files.detection import FileKindRefused
from chats.ground.refusals import NotFound
from chats.memory.preferences import memory_settings, preference_texts
from chats.memory.search.search import QuestionTooLong
from chats.people import keys
from chats.people.sessions import ReauthenticationRequired
from chats.prompt import model_choice
from chats.prompt.policy_explanation import NotThere
from chats.prompt.sent_request import RequestNotWhole
from chats.record import audit_access, message_text, passthrough_requests
from chats.record.holds import UnderHold
from chats.simulation import evaluating, trial
from chats.simulation.radius import RadiusOver
from chats.streams.connection import TooManyStreams
from chats.teams import conversation, draft_checks, rosters, snapshots
from chats.turns import follow_up_turns, round_again, round_messages, start
from chats.turns.consents import ConsentIsOver
from chats.turns.roster import TeamGone
from chats.turns.stop import TurnIsOver
from chats.webhooks import managing
from contextpolicy import blast, holds, policy_refusals, policy_skills, two_persons
from contextpolicy.skills import TooManySkills

# Uploaded files of a message that is not sent.
UPLOADS = (
    attach.FileNotFound,
    attach.FileNotReady,
    attach.FileNotRead,
    attach.TooManyFiles,
    attach.FilesTooLarge,
    attach.FileKindNotAllowed,
    attach.FileModelNotAllowed,
    attach.FileTooLargeForPolicy,
    file_uploads.FileUploadsOff,
)
# Files of a message, as uploads or inside the request.
FILES = (
    *UPLOADS,
    file_uploads.FileMissing,
    file_uploads.FileEmpty,
    file_uploads.FileTooLarge,
    file_uploads.FileQuotaExceeded,
    FileKindRefused,
    inline.InvalidInlineFile,
)
OPERATIONS: Mapping[str, tuple[Foreseen, ...]] = {
    **dict.fromkeys(
        [
            "audit_checkpoints_list",
            "evaluations_list",
            "holds_list",
            "policies_assignments_list",
            "policies_list",
            "policies_versions_list",
            "radii_list",
            "retention_runs_list",
            "chats_branches_list",
            "chats_compactions_list",
            "chats_list",
            "chats_messages_list",
            "chats_rounds_list",
            "erasures_list",
            "imports_chats",
            "imports_list",
            "skills_files",
            "skills_list",
            "teams_list",
            "webhooks_deliveries_list",
        ],
        (InvalidCursor,),
    ),
    **dict.fromkeys(
        ["chats_messages_exclude", "chats_messages_include", "chats_messages_unpin"],
        MARK,
    ),
    "audit_compactions_request": (READING, reconstruction.NoSuchCall),
    "audit_compactions_request_file": (
        READING,
        reconstruction.NoSuchCall,
        RequestNotWhole,
    ),
    "audit_events_list": (InvalidCursor, InvalidSearch),
    "audit_export": (InvalidSearch, UNSTORABLE),
    "audit_proof": (NoProof, UNSTORABLE),
    "audit_readings_grant": (audit_access.SecondAuditorNeeded,),
    "audit_readings_open": (NotFound, audit_access.ReasonNeeded, UNSTORABLE),
    "audit_readings_refuse": (audit_access.SecondAuditorNeeded,),
    "audit_receipts_request": (READING,),
    "audit_receipts_request_file": (READING, RequestNotWhole),
    "chats_archive_search": (summary_permissions.ArchiveClosed, QuestionTooLong),
    "chats_change": (
        *MODEL,
        lifecycle.UnknownModel,
        lifecycle.InvalidTitle,
        lifecycle.TitleTooLong,
        organising.UnknownFolder,
        rosters.TeamBusy,
        system_texts.SystemTextLocked,
        system_texts.SystemTextTooLong,
        system_texts.InvalidSystemText,
        system_texts.NoRoomForSystemText,
    ),
    "chats_compactions_approve": (*SUMMARY, approve.NotWaiting, approve.Overtaken),
    "chats_compactions_cancel": (controls.NotBeingWritten,),
    "chats_compactions_create": (
        *MODEL,
        controls.NoSummaries,
        controls.FocusTooLong,
        controls.UnknownSummariser,
        UNSTORABLE,
    ),
    "chats_compactions_redo": (*SUMMARY, undo.NothingToRedo),
    "chats_compactions_reject": (
        *SUMMARY,
        approve.NotWaiting,
        approve.ReasonTooLong,
        UNSTORABLE,
    ),
    "chats_compactions_request": (reconstruction.NoSuchCall,),
    "chats_compactions_request_file": (reconstruction.NoSuchCall, RequestNotWhole),
    "chats_compactions_rerun": (
        *SUMMARY,
        controls.SummaryNotActive,
        controls.NoSummaries,
        controls.FocusTooLong,
        controls.UnknownSummariser,
        UNSTORABLE,
    ),
    "chats_compactions_revise": (
        *SUMMARY,
        controls.SummaryNotActive,
        revise.SummaryEmpty,
        revise.SummaryTooLong,
        UNSTORABLE,
    ),
    "chats_compactions_undo": (*SUMMARY, controls.SummaryNotActive, undo.UndoDoesNotFit),
    "chats_context_ask": (*PROMPT, *TEXT, *UPLOADS),
    "chats_context_get": PROMPT,
    "chats_create": (
        NotFound,
        *REPLY,
        *TEXT,
        lifecycle.TooManyChats,
        lifecycle.TemporaryNotAllowed,
        lifecycle.UnknownModel,
        lifecycle.InvalidTitle,
        lifecycle.TitleTooLong,
        *FILES,
        inline.InlineFilesTooLarge,
    ),
    "chats_erase": ERASE,
    "chats_export": (InvalidCursor, TooManyStreams),
    "chats_messages_branch": BRANCH,
    "chats_messages_edit": (
        *REPLY,
        *TEXT,
        *BRANCH,
        branching.NotAUserMessage,
        TeamGone,
    ),
    "chats_messages_erase": ERASE,
    "chats_messages_keep": (*MARK, marks.NothingToKeep),
    "chats_messages_pin": (*MARK, marks.PinsFull, *MODEL),
    "chats_messages_regenerate": (
        *REPLY,
        *BRANCH,
        branching.NotAReply,
        follow_up_turns.QuestionErased,
    ),
    "chats_messages_send": (
        *REPLY,
        *TEXT,
        round_messages.NoSuchSeat,
        TeamGone,
        TooManyStreams,
        *FILES,
        inline.InlineFilesTooLarge,
    ),
    "chats_pins_get": MODEL,
    "chats_policy_explain": (NotThere, model_choice.PolicyRefused),
    "chats_policy_get": (model_choice.PolicyRefused,),
    "chats_restore": (deletion.CannotComeBack, lifecycle.TooManyChats),
    "chats_rounds_go_on": (
        round_again.RoundGoesOn,
        TeamGone,
        *QUEUED,
    ),
    "chats_agents_context": (TeamGone,),
    "chats_state_change": STATE_EDIT,
    "chats_state_get": STATE,
    "chats_state_restore": (*STATE_EDIT, state_edits.NoSuchStateVersion),
    "chats_state_versions": STATE,
    "chats_team_change": (UNSTORABLE,),
    "chats_team_clear": (branching.TooManyBranches,),
    "chats_team_context": AGENT,
    "chats_team_messages_add": (
        Case(422, "message_required", "The message is null."),
        Case(422, "content_not_text", "`content` is not a string."),
        Case(422, "speaker_required", "`speaker` is missing."),
        Case(422, "role_id_required", "`speaker.roleId` is missing or empty."),
        conversation.InvalidSpeaker,
        conversation.ReplyUnderWay,
        message_text.MessageTooLong,
        UNSTORABLE,
        start.ChatFull,
        model_choice.PolicyRefused,
    ),
    "chats_team_messages_list": (InvalidCursor, TooManyStreams),
    "chats_team_prompt": (*AGENT, conversation.PromptTooLarge),
    "chats_team_snapshot_get": (snapshots.SnapshotTooLarge,),
    "chats_team_snapshot_read": (
        snapshots.SnapshotRefused,
        conversation.InvalidSpeaker,
        message_text.MessageTooLong,
        UNSTORABLE,
        start.ChatFull,
        branching.TooManyBranches,
        model_choice.PolicyRefused,
    ),
    "chats_turns_consent": (NotFound, ConsentIsOver),
    "chats_turns_continue": (
        *REPLY,
        follow_up_turns.TurnNotOver,
        follow_up_turns.NotTheLastTurn,
        follow_up_turns.NothingToContinue,
    ),
    "chats_turns_events": (TooManyStreams,),
    "chats_turns_request_file": (RequestNotWhole,),
    "chats_turns_retry": (
        *REPLY,
        TeamGone,
        follow_up_turns.TurnNotOver,
        follow_up_turns.NotTheLastTurn,
        follow_up_turns.TurnIsCompleted,
        follow_up_turns.TurnWasAbsorbed,
        follow_up_turns.QuestionErased,
    ),
    "chats_turns_stop": (TurnIsOver,),
    "counts": (BAD_VALUE,),
    "evaluations_begin": (
        NotFound,
        evaluating.NothingToEvaluate,
        evaluating.TooManyEvaluations,
        policy_refusals.PolicyProblems,
        UNSTORABLE,
    ),
    "evaluations_end": (evaluating.EvaluationOver,),
    "evaluations_promote": (evaluating.EvaluationOver, *PUBLISH, UNSTORABLE),
    "files_delete": (file_uploads.FileInUse, UnderHold),
    "files_download": (file_uploads.FileMissing,),
    "files_list": (InvalidCursor,),
    "files_upload": (
        UploadMalformed,
        file_uploads.FileUploadsOff,
        file_uploads.FileEmpty,
        file_uploads.FileTooLarge,
        file_uploads.FileQuotaExceeded,
        FileKindRefused,
    ),
    "folders_create": (*FOLDER, organising.TooManyFolders),
    "folders_rename": FOLDER,
    "holds_place": (holds.HoldIncomplete, UNSTORABLE),
    "holds_release": (
        holds.HoldReleased,
        Case(422, holds.HoldIncomplete.code, "The reason contains no letters or digits."),
        two_persons.SecondPersonNeeded,
        UNSTORABLE,
    ),
    "imports_create": (
        upload.ImportsUnderWay,
        ImportInForm,
        Case(422, "import_empty", "The file is empty."),
        Case(
            422,
            "import_too_large",
            "The unpacked archive exceeds 2 GiB (the default of `IMPORT_UNPACKED_BYTES`).",
        ),
        Case(
            422,
            "import_bad_archive",
            "The ZIP archive is damaged or encrypted, has an unsafe path or two entries with the "
            "same name, or an entry expands too much.",
        ),
        Case(
            422,
            "import_too_many",
            "The archive has more than 20,000 entries (the default of `IMPORT_ENTRIES`).",
        ),
    ),
    "imports_delete": (upload.ImportNotOver,),
    "keys_create": (
        ReauthenticationRequired,
        keys.InvalidKeyName,
        keys.KeyNameTooLong,
        keys.UnknownScope,
        keys.InvalidLifetime,
        keys.TooManyKeys,
    ),
    "memory_change": (
        memory_settings.NoConsent,
        memory_settings.InstructionsTooLong,
        memory_settings.InvalidInstructions,
    ),
    "messages_recent": (NotFound, model_choice.PolicyRefused),
    "models_list": (model_choice.PolicyRefused,),
    "policies_assignments_create": (
        policy_refusals.PolicyNotInUse,
        *CONTROLS,
        UNSTORABLE,
    ),
    "policies_assignments_delete": CONTROLS,
    "policies_change": (
        policy_refusals.PolicyNameTaken,
        policy_refusals.PolicyInUse,
        *CONTROLS,
        UNSTORABLE,
    ),
    "policies_create": NEW_POLICY,
    "policies_effective": (NotFound, NotThere, model_choice.PolicyRefused),
    "policies_import": (
        *NEW_POLICY,
        policy_skills.PolicySkillsRefused,
        policy_refusals.PolicyNotInUse,
        policy_refusals.PolicyChangedMeanwhile,
    ),
    "policies_lint": (UNSTORABLE,),
    "policies_preview": (NotFound, UNSTORABLE),
    "policies_sample": (NotFound, UNSTORABLE),
    "policies_trial": (
        NotFound,
        *MODEL,
        model_choice.ModelUnavailable,
        policy_refusals.PolicyProblems,
        trial.NoSummariser,
        trial.NothingToSummarise,
        trial.TooLongForOneCall,
        trial.TrialFailed,
        passthrough_requests.TrialUnderWay,
        UNSTORABLE,
    ),
    "policies_versions_activate": (policy_refusals.NoSuchVersion, *PUBLISH, UNSTORABLE),
    # A version that needs a second person becomes a draft.
    "policies_versions_create": (
        policy_refusals.NoSuchVersion,
        policy_refusals.PolicyProblems,
        policy_refusals.PolicyChangedMeanwhile,
        blast.BlastRadiusNeeded,
        UNSTORABLE,
    ),
    "policies_versions_get": (policy_refusals.NoSuchVersion,),
    "policies_versions_restore": (
        policy_refusals.NoSuchVersion,
        policy_refusals.PolicyProblems,
        blast.BlastRadiusNeeded,
    ),
    "preferences_change": PREFERENCE,
    "preferences_create": (
        NotFound,
        *PREFERENCE,
        preference_texts.UnknownSlot,
    ),
    "preferences_delete": (UnderHold,),
    "radii_begin": (
        NotFound,
        policy_refusals.PolicyProblems,
        policy_refusals.PolicyNotInUse,
        UNSTORABLE,
    ),
    "radii_resume": (RadiusOver,),
    "radii_stop": (RadiusOver,),
    "search": (NotFound, searching.SearchTooLong),
    "summaries_review": (
        *SUMMARY,
        approve.NotWaiting,
        READING,
        audit_access.ReasonNeeded,
        UNSTORABLE,
    ),
    "skills_change": tuple(each for each in SKILL if each is not TooManySkills),
    "skills_create": (skills.SkillPlaceRefused, *SKILL),
    "skills_delete": (skills.SkillOfInstallation,),
    "skills_import": (
        skills.SkillPlaceRefused,
        skill_folders.SkillArchiveInvalid,
        skill_folders.SkillArchiveTooLarge,
        skill_folders.SkillArchiveUnsafe,
        skill_folders.SkillFileInvalid,
        *SKILL,
    ),
    "teams_change": (draft_checks.InvalidTeam, rosters.NotYours),
    "teams_copy": (draft_checks.InvalidTeam, rosters.TooManyTeams),
    "teams_create": (draft_checks.InvalidTeam, rosters.NotYours, rosters.TooManyTeams),
    "teams_delete": (rosters.NotYours,),
    "ui_chats_resume": (TooManyStreams,),
    "ui_chats_send": (
        NotFound,
        lifecycle.UnknownModel,
        *REPLY,
        *TEXT,
        *BRANCH,
        lifecycle.TooManyChats,
        branching.NotAUserMessage,
        branching.NotAReply,
        follow_up_turns.QuestionErased,
        ui_requests.InvalidUIRequest,
        ui_requests.UnsupportedUIMessage,
        ui_chats.HistoryNotStored,
        ui_chats.UIMessageIdReused,
        UIMessageNotFound,
        TooManyStreams,
        *FILES,
    ),
    "usage": (BAD_VALUE,),
    "webhooks_change": (*WEBHOOK, ReauthenticationRequired),
    "webhooks_create": (
        *WEBHOOK,
        managing.TooManyWebhooks,
        ReauthenticationRequired,
    ),
    "webhooks_deliveries_send": (managing.WebhookIsOff, managing.DeliveryWaits),
    "webhooks_test": (managing.WebhookIsOff,),
}
