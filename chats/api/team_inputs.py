"""The inputs of a chat as a team's, in the names that programs for agents use."""

from typing import Any

from rest_framework import serializers

from chats.api.inputs import Flag, PlainText, Strict, WholeNumber

PROMPT_FORMS = ("messages", "claude-code", "openai-codex", "google-gemini", "plain")


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


class AgentBodies(serializers.ListSerializer[Any]):
    """The agents of a team; a fault is told with the place of its agent."""

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return the agents, checked. Raises ValidationError."""
        try:
            agents: list[Any] = super().to_internal_value(data)
        except serializers.ValidationError as error:
            if not isinstance(error.detail, list):
                raise
            places = enumerate(error.detail)
            faults = {str(place): fault for place, fault in places if fault}
            raise serializers.ValidationError(faults) from None
        return agents


class AgentBody(Strict):
    """An agent of a team."""

    class Meta:
        list_serializer_class = AgentBodies

    name = PlainText(help_text="1 to 60 characters; no other member has it.")
    role_id = PlainText(default="", help_text="Of an agent that the team has; empty: a new one.")
    type = PlainText(default="ai", help_text="`ai`, or `human` for a seat that the owner fills.")
    agent_type = PlainText(default="", help_text="The kind of program that asks for its prompt.")
    model = PlainText(default="", help_text="The id of a model. Empty: the chat's.")
    instruction = PlainText(default="", help_text="At most 200,000 characters.")
    instruction_file_text = PlainText(default="", help_text="At most 200,000 characters.")
    prompt_form = serializers.ChoiceField(
        choices=["", *PROMPT_FORMS],
        default="",
        help_text="The form of its prompts in rounds of this server. Empty: an existing"
        " agent keeps its form, a new one gets the form of its `agent_type`, else `messages`.",
    )
    window_size = WholeNumber(
        default=None,
        allow_null=True,
        help_text="Earlier messages that it sees, 0 to 100. Null: an existing agent keeps its"
        " window, a new one gets 5.",
    )
    policy = PlainText(default="", help_text="The slug of a policy; only administrators give one.")
    rests = Flag(default=False, help_text="Nobody calls it.")


class TeamBody(Strict):
    """A team, whole."""

    name = PlainText(help_text="1 to 100 characters.")
    agents = AgentBody(many=True, help_text="1 to 8 members, in their order.")
    shared = Flag(default=False, help_text="For everybody; only when it is made.")
    routing = PlainText(
        default="all",
        help_text="Who replies to a message that names nobody: `all` once, `round_robin` in turn"
        " until the limit, `person`: the first.",
    )
    independent = Flag(default=False, help_text="No reply of a round sees the others.")
    hop_limit = WholeNumber(default=8, help_text="Replies in a round, 1 to 50.")
    token_limit = WholeNumber(default=100_000, help_text="Tokens of a round, 1 to 10,000,000.")
    seconds_limit = WholeNumber(default=600, help_text="Seconds of a round, 1 to 86,400.")
    goes_on_after_failure = Flag(default=True, help_text="A failed reply does not end a round.")
    message_cap = WholeNumber(
        default=0,
        help_text="Of more messages the oldest leave prompts for the archive: 20, and no less than"
        " `hop_limit`, to 100,000. 0: none leave.",
    )
    max_bytes = WholeNumber(
        default=None,
        allow_null=True,
        help_text="The most bytes of an agent's prompt, 1,024 to 100,000,000; 0: no limit. Null: an"
        " existing team keeps its limit, a new one gets 786,432.",
    )
    task = PlainText(
        default="", help_text="Every agent is told it. Over 5,120 bytes the beginning is kept."
    )
