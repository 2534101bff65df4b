"""Request bodies of team chats. Field names match those of agent clients."""

from typing import Any

from django.utils.translation import gettext
from rest_framework import serializers

from chats.api.core.inputs import Flag, PageQuery, PlainText, Strict, WholeNumber

PROMPT_FORMS = ("messages", "claude-code", "openai-codex", "google-gemini", "plain")


class TeamTask(Strict):
    """The task that all agents of a team receive."""

    teamTask = PlainText(
        help_text=(
            "Task that is sent to every agent. A task over 5,120 bytes is truncated. Empty: no "
            "task."
        )
    )


class NewTeamMessage(Strict):
    """A message from a team member, to add without a reply."""

    # Validated by the domain, whose error messages clients rely on.
    message = serializers.JSONField(
        default=None,
        allow_null=True,
        help_text=(
            "`{content, speaker: {roleId, roleName, type}, routing: {resolvedAddressees}}`. "
            "`type` is `ai`; any other value means `human`. Without `roleName`, the id is also "
            "the name. Without recipients, the message is addressed to all members. An id in the "
            "message is ignored."
        ),
    )


class NewSnapshot(Strict):
    """A snapshot that replaces the messages and the task of a chat."""

    snapshot = serializers.JSONField(
        default=None,
        allow_null=True,
        help_text=(
            "A snapshot as exported: `{messages, teamTask, timestamp, version: 1}`. It "
            "replaces the messages and the task of the chat."
        ),
    )


class AgentQuery(Strict):
    """The agent and the window of a context preview."""

    agentId = PlainText(help_text="Id of the agent's role.")
    agentType = PlainText(
        default="",
        help_text=(
            "Format of the prompt: `claude-code`, `openai-codex` or `google-gemini`, or their "
            "short names `claude`, `codex`, `gemini`. Any other value: plain text."
        ),
    )
    windowSizeOverride = WholeNumber(
        default=None,
        allow_null=True,
        help_text=(
            "Number of earlier messages in the context, 0 to 100. Reduced to the team's "
            "`message_cap` if that is lower. Null: 5."
        ),
    )
    systemInstruction = PlainText(
        default=None,
        allow_null=True,
        help_text="System text of the agent, at most 200,000 characters. Null: none.",
    )
    instructionFileText = PlainText(
        default=None,
        allow_null=True,
        help_text="Text of the agent's instruction file, at most 200,000 characters. Null: none.",
    )


class AgentBodies(serializers.ListSerializer[Any]):
    """The agents of a team. Errors name the agent's position."""

    def to_internal_value(self, data: Any) -> list[Any]:
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
    """An agent of a team: its role, model, instructions and window."""

    class Meta:
        list_serializer_class = AgentBodies

    name = PlainText(
        help_text=(
            "Name of the agent, 1 to 60 characters, unique in the team. Case, spaces and hyphens "
            "are ignored."
        )
    )
    role_id = PlainText(
        default="",
        help_text=(
            "Id of the existing agent to change. Empty or unknown: a new agent is created, with a "
            "new id."
        ),
    )
    type = PlainText(
        default="ai",
        help_text=(
            "`ai`: a model replies. `human`: the chat's owner writes the messages of this role."
        ),
    )
    agent_type = PlainText(
        default="",
        help_text=(
            "Client that runs the agent, such as `claude-code`, `openai-codex` or "
            "`google-gemini`. The client determines the default of `prompt_form`. Empty: none."
        ),
    )
    model = PlainText(
        default="", help_text="Id of the model that the agent uses. Empty: the chat's model."
    )
    instruction = PlainText(
        default="",
        help_text=(
            "Text sent to this agent before the messages, at most 200,000 characters. Empty: none."
        ),
    )
    instruction_file_text = PlainText(
        default="",
        help_text=(
            "Text of an instruction file such as `CLAUDE.md`, sent to this agent before the "
            "messages, at most 200,000 characters. Empty: none."
        ),
    )
    prompt_form = serializers.ChoiceField(
        choices=["", *PROMPT_FORMS],
        default="",
        help_text=(
            "Format of the agent's prompt when this server runs the round: `messages`, or one "
            "block of text in the format of the named client or in `plain` format. Empty: an "
            "existing agent keeps its format; a new agent gets the format of its `agent_type`, "
            "otherwise `messages`."
        ),
    )
    window_size = WholeNumber(
        default=None,
        allow_null=True,
        help_text=(
            "Number of earlier messages that the agent sees, 0 to 100. Null: an existing "
            "agent keeps its value; a new agent gets 5."
        ),
    )
    policy = PlainText(
        default="",
        help_text=(
            "Slug of the policy that applies to the agent's prompts. Empty: none. Only "
            "administrators can set it."
        ),
    )
    rests = Flag(default=False, help_text="True: the agent is inactive and does not reply.")


class TeamBody(Strict):
    """A complete team: its name, rules and agents."""

    name = PlainText(help_text="Name of the team, 1 to 100 characters.")
    agents = AgentBody(
        many=True,
        help_text=(
            "1 to 8 members, at least one of them an active agent of type `ai`. By default, "
            "agents reply in this order."
        ),
    )
    shared = Flag(
        default=False,
        help_text=(
            "True: every user can use the team. Only administrators can set it, and only at "
            "creation. Ignored when a team is replaced."
        ),
    )
    routing = PlainText(
        default="all",
        help_text=(
            "Rule for messages without recipients. `all`: each agent replies once, in order. "
            "`round_robin`: the agents reply in turn until a limit, or until all replies are "
            "empty. `person`: only the first agent replies."
        ),
    )
    independent = Flag(
        default=False,
        help_text=(
            "True: agents reply in parallel and do not see each other's replies of the same round."
        ),
    )
    hop_limit = WholeNumber(default=8, help_text="Maximum number of replies in a round, 1 to 50.")
    token_limit = WholeNumber(
        default=100_000,
        help_text="Maximum number of prompt and reply tokens in a round, 1 to 10,000,000.",
    )
    seconds_limit = WholeNumber(
        default=600, help_text="Maximum duration of a round in seconds, 1 to 86,400."
    )
    goes_on_after_failure = Flag(
        default=True,
        help_text=(
            "True: the round continues with the next agent after a failed reply. False: the "
            "round ends."
        ),
    )
    message_cap = WholeNumber(
        default=0,
        help_text=(
            "Maximum number of messages in prompts; older ones stay stored and searchable. At "
            "least 20 and at least `hop_limit`, at most 100,000. 0: no limit."
        ),
    )
    max_bytes = WholeNumber(
        default=None,
        allow_null=True,
        help_text="Maximum size of an agent's prompt in bytes, 1,024 to 100,000,000. 0: no "
        "limit in rounds, and 786,432 in prompts for agents in other applications. Null: an "
        "existing team keeps its limit; a new team gets 786,432.",
    )
    task = PlainText(
        default="",
        help_text=(
            "Task that is sent to every agent. A task over 5,120 bytes is truncated. Empty: no "
            "task."
        ),
    )


class TeamMessagesQuery(PageQuery):
    """Filters for a team's messages."""

    id = PlainText(
        default="",
        help_text=(
            "Only the message with this id in the team chat: `msg-N`, counted from 1, or the id "
            "from an import. Empty: all messages."
        ),
    )
    speaker = PlainText(
        default="",
        help_text=(
            "Only messages of the role with this id. `user` or `assistant`: also messages without "
            "a role. Empty: all roles."
        ),
    )
    since = serializers.DateTimeField(
        required=False, help_text="Start of the time range (ISO 8601, inclusive). Absent: no limit."
    )
    until = serializers.DateTimeField(
        required=False, help_text="End of the time range (ISO 8601, exclusive). Absent: no limit."
    )
    stream = serializers.BooleanField(
        default=False,
        help_text=(
            "True: stream all messages as lines of JSON instead of pages. Cannot be combined "
            "with `limit`."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values. Raises ValidationError for a stream with a limit."""
        if attrs["stream"] and "limit" in self.initial_data:
            text = gettext("`limit` cannot be combined with `stream`. Remove one of them.")
            raise serializers.ValidationError({"limit": [text]})
        return attrs
