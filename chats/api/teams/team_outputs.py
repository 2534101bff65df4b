"""Serializers for team chats. Field names match those of agent clients."""

from typing import Any

from rest_framework import serializers

from chats.api.teams.team_inputs import PROMPT_FORMS


class SpeakerOut(serializers.Serializer[Any]):
    """The speaker of a message: type, and id and name of the team role or user."""

    roleId = serializers.CharField(help_text="Id of the role or of the user.")
    roleName = serializers.CharField(help_text="Name of the role or of the user.")
    type = serializers.ChoiceField(
        choices=["human", "ai"], help_text="`human`: a person. `ai`: an agent or a model."
    )


class RoutingOut(serializers.Serializer[Any]):
    """The recipients of a message. Empty: all members."""

    resolvedAddressees = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the addressed members. Empty: all."
    )


class SnapshotMessageOut(serializers.Serializer[Any]):
    """A message in a snapshot of a team chat."""

    id = serializers.CharField(
        help_text=(
            "Id of the message in the team chat: `msg-N`, counted from 1, or the id from an import."
        )
    )
    content = serializers.CharField(
        help_text="Text of the message as written, with routing markers such as `[NEXT:name]`."
    )
    speaker = SpeakerOut()
    routing = RoutingOut()


class TeamMessageOut(SnapshotMessageOut):
    """A message of a team chat, with its time and with the id that other endpoints use."""

    message = serializers.UUIDField(help_text="Id of the message in all other endpoints.")
    createdAt = serializers.DateTimeField(
        help_text="Time of the message. An imported message keeps its time."
    )


class TeamOut(serializers.Serializer[Any]):
    """The task of a team chat, the number of its messages and the latest message."""

    teamTask = serializers.CharField(
        allow_null=True, help_text="Task that is sent to every agent. Null: none."
    )
    notice = serializers.CharField(
        help_text=(
            "Human-readable notice with the saved length, if the task was truncated. Empty: the "
            "whole task was saved."
        )
    )
    messageCount = serializers.IntegerField(help_text="Number of messages on the active branch.")
    latestMessage = TeamMessageOut(
        allow_null=True, help_text="Newest message. Null: there are no messages."
    )


class ContextMessageOut(serializers.Serializer[Any]):
    """An earlier message in an agent's context, without its id and routing markers."""

    to = serializers.CharField(help_text="`all`, a name, or several names separated by commas.")
    content = serializers.CharField(help_text="Text of the message, without routing markers.")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields. Adds `from`, which as a Python keyword cannot be an attribute."""
        speaker = serializers.CharField(help_text="Name of the speaker.")
        return {"from": speaker, **super().get_fields()}


class LeftOutOut(serializers.Serializer[Any]):
    """An earlier message that the agent's prompt leaves out, and the reason."""

    message = serializers.CharField(
        help_text="Id of the message in the team chat: `msg-N`, or the id from an import."
    )
    reason = serializers.ChoiceField(
        choices=["window", "duplicate_of_current", "markers_only"],
        help_text=(
            "`window`: the message and all messages before it are outside the window. "
            "`duplicate_of_current`: it repeats the newest message. `markers_only`: it contains "
            "only routing markers."
        ),
    )


class AgentContextOut(serializers.Serializer[Any]):
    """The context of one agent: its window, instructions and task."""

    contextMessages = ContextMessageOut(
        many=True, help_text="Earlier messages in the window, oldest first."
    )
    currentMessage = serializers.CharField(
        help_text="Text of the newest message, without routing markers."
    )
    teamTask = serializers.CharField(allow_null=True, help_text="Task of the team. Null: none.")
    systemInstruction = serializers.CharField(
        allow_null=True, help_text="System text of the agent. Null: none."
    )
    instructionFileText = serializers.CharField(
        allow_null=True, help_text="Text of the agent's instruction file. Null: none."
    )
    maxBytes = serializers.IntegerField(help_text="Maximum size of the prompt in bytes.")
    leftOut = LeftOutOut(many=True, help_text="Messages outside the context, each with the reason.")


class AgentPromptOut(serializers.Serializer[Any]):
    """The complete prompt of an agent, in the format of its client."""

    prompt = serializers.CharField(help_text="Prompt in the format of the client.")
    systemFlag = serializers.CharField(
        required=False,
        help_text="System text for the client's system prompt option. Absent if there is none.",
    )
    omitted = serializers.IntegerField(
        help_text=(
            "Number of messages left out to keep the prompt within the limit. The oldest are "
            "left out first."
        )
    )


class SnapshotOut(serializers.Serializer[Any]):
    """A snapshot of a team chat: its messages and its task."""

    messages = SnapshotMessageOut(
        many=True, help_text="Messages of the active branch, oldest first."
    )
    teamTask = serializers.CharField(allow_null=True, help_text="Task of the team. Null: none.")
    timestamp = serializers.IntegerField(
        help_text="Time of the export, in milliseconds since 1970-01-01 UTC."
    )
    version = serializers.IntegerField(help_text="Version of the snapshot format. Always 1.")


class AgentOut(serializers.Serializer[Any]):
    """An agent of a team, with its instructions and window."""

    role_id = serializers.CharField(
        help_text="Id of the agent's role, which stays the same in new versions."
    )
    name = serializers.CharField()
    type = serializers.ChoiceField(choices=["ai", "human"])
    agent_type = serializers.CharField(
        help_text="Client that runs the agent, such as `claude-code`. Empty: none."
    )
    model = serializers.CharField(
        help_text="Id of the model that the agent uses. Empty: the chat's model."
    )
    instruction = serializers.CharField(
        help_text="Text sent to this agent before the messages. Empty: none."
    )
    instruction_file_text = serializers.CharField(
        help_text=(
            "Text of an instruction file, sent to this agent before the messages. Empty: none."
        )
    )
    prompt_form = serializers.ChoiceField(
        choices=PROMPT_FORMS,
        help_text=(
            "Format of the agent's prompt when this server runs the round: `messages`, or one "
            "block of text in the format of the named client or in `plain` format."
        ),
    )
    window_size = serializers.IntegerField(
        help_text="Number of earlier messages that the agent sees, 0 to 100."
    )
    policy = serializers.CharField(
        help_text="Slug of the policy that applies to the agent's prompts. Empty: none."
    )
    rests = serializers.BooleanField(help_text="True: the agent is inactive and does not reply.")


class RosterOut(serializers.Serializer[Any]):
    """A team with its rules and agents, in one version."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    version = serializers.IntegerField(
        help_text="Version number, which increases with each change."
    )
    shared = serializers.BooleanField(help_text="True: every user can use the team.")
    routing = serializers.ChoiceField(
        choices=["all", "round_robin", "person"],
        help_text=(
            "Rule for messages without recipients: `all`, `round_robin` or `person`, as for a "
            "new team."
        ),
    )
    independent = serializers.BooleanField(
        help_text=(
            "True: agents reply in parallel and do not see each other's replies of the same round."
        )
    )
    hop_limit = serializers.IntegerField(help_text="Maximum number of replies in a round.")
    token_limit = serializers.IntegerField(
        help_text="Maximum number of prompt and reply tokens in a round."
    )
    seconds_limit = serializers.IntegerField(help_text="Maximum duration of a round in seconds.")
    goes_on_after_failure = serializers.BooleanField(
        help_text="True: a round continues after a failed reply."
    )
    message_cap = serializers.IntegerField(
        help_text="Maximum number of messages in prompts. 0: no limit."
    )
    max_bytes = serializers.IntegerField(
        help_text="Maximum size of an agent's prompt in bytes. 0: no limit in rounds, and 786,432 "
        "in prompts for agents in other applications."
    )
    task = serializers.CharField(help_text="Task that is sent to every agent. Empty: no task.")
    agents = AgentOut(many=True, help_text="Agents in the order in which they reply by default.")


class SavedRosterOut(RosterOut):
    """A saved team, with warnings about its values."""

    warnings = serializers.ListField(
        child=serializers.CharField(),
        help_text="Warnings about values that are valid but can have unexpected effects. Empty: "
        "none.",
    )


class RoundOut(serializers.Serializer[Any]):
    """A round of a team chat: the replies of agents to one message of a user."""

    id = serializers.UUIDField()
    status = serializers.CharField(
        help_text=(
            "- `running`: agents are replying.\n- `waiting`: a human member of the team is next.\n"
            "- `settled`: all agents of the round have replied.\n- `limit`: the round reached a "
            "limit, which `reason` names.\n- `pair`: two agents replied only to each other.\n- "
            "`stopped`: a user stopped the round.\n- `failed`: a reply failed.\n- `replaced`: a "
            "newer message, or a continuation, ended the round."
        )
    )
    reason = serializers.CharField(
        help_text=(
            "Limit that ended the round: `hops` (replies), `tokens` or `time`. `only_this`: a "
            "single reply is regenerated. Empty otherwise."
        )
    )
    team_version = serializers.IntegerField(
        help_text="Number of the team version that the whole round uses."
    )
    opening = serializers.UUIDField(
        allow_null=True,
        help_text="Id of the message that started the round. Null: it no longer exists.",
    )
    speakers = serializers.ListField(
        child=serializers.CharField(), help_text="Names of the agents that replied, in order."
    )
    next = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "Names of the agents that reply next. After the round has ended: names of the "
            "agents that did not reply."
        ),
    )
    hops = serializers.IntegerField(help_text="Number of replies so far.")
    hop_limit = serializers.IntegerField(help_text="Maximum number of replies.")
    tokens = serializers.IntegerField(
        help_text="Number of prompt and reply tokens in the round so far."
    )
    unknown_names = serializers.ListField(
        child=serializers.CharField(),
        help_text="Names that replies mention but that match no role of the team.",
    )
    inactive_names = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "Names of inactive members that the user's messages or replies address. They do not "
            "reply until they are active in the team."
        ),
    )
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the round ended. Null: in progress."
    )
