"""The inputs of a chat as a team's, in the names that programs for agents use."""

from rest_framework import serializers

from chats.api.inputs import PlainText, Strict, WholeNumber


class TeamTask(Strict):
    """The task of a team."""

    teamTask = PlainText(
        help_text="Every agent is told it. Of more than 5,120 bytes the beginning is kept."
    )


class NewTeamMessage(Strict):
    """The message of a member of a team."""

    # Checked by the domain, whose sentences are the integrators' contract.
    message = serializers.JSONField(
        default=None,
        allow_null=True,
        help_text="`{content, speaker: {roleId, roleName, type}, routing: {resolvedAddressees}}`;"
        " `type` is `human` or `ai`, no addressees mean everybody. An id in it is ignored.",
    )


class NewSnapshot(Strict):
    """A snapshot to read."""

    snapshot = serializers.JSONField(
        default=None, allow_null=True, help_text="`{messages, teamTask, timestamp, version: 1}`."
    )


class AgentQuery(Strict):
    """The agent whose context is asked for."""

    agentId = PlainText(help_text="Its role's id.")
    agentType = PlainText(
        default="",
        help_text="`claude-code`, `openai-codex`, `google-gemini` or their short names; any other"
        " kind gets plain text.",
    )
    windowSizeOverride = WholeNumber(
        default=None, allow_null=True, help_text="Earlier messages, 0 to 100. Null: 5."
    )
    systemInstruction = PlainText(default=None, allow_null=True)
    instructionFileText = PlainText(default=None, allow_null=True)
