"""Serializers for team chats. Field names match those of agent clients."""

from typing import Any

from rest_framework import serializers

from chats.api.teams.team_inputs import PROMPT_FORMS
from chats.models import Round


class SpeakerOut(serializers.Serializer[Any]):
    """The speaker of a message: the id and name of a team role, or of a user, and its type."""

    roleId = serializers.CharField()
    roleName = serializers.CharField()
    type = serializers.ChoiceField(choices=["human", "ai"])


class RoutingOut(serializers.Serializer[Any]):
    """The addressees of a message. Empty: all."""

    resolvedAddressees = serializers.ListField(child=serializers.CharField())


class SnapshotMessageOut(serializers.Serializer[Any]):
    """A message of a team chat, in the form that agents' clients use."""

    id = serializers.CharField(
        help_text=(
            "Id of the message in the team chat: `msg-N`, counted from 1, or the id from an import."
        )
    )
    content = serializers.CharField(
        help_text=("Text of the message as written, with routing markers such as `[NEXT:name]`.")
    )
    speaker = SpeakerOut()
    routing = RoutingOut()


class TeamMessageOut(SnapshotMessageOut):
    """A message of a team chat, with its id in the rest of the API and its time."""

    message = serializers.UUIDField(help_text="Id of the message in all other endpoints.")
    createdAt = serializers.DateTimeField()


class TeamOut(serializers.Serializer[Any]):
    """The task of a team chat and its latest message."""

    teamTask = serializers.CharField(allow_null=True)
    notice = serializers.CharField(
        help_text=(
            "Sentence with the saved length, if the task was cut. Empty: the whole task was saved."
        )
    )
    messageCount = serializers.IntegerField()
    latestMessage = TeamMessageOut(allow_null=True)


class ContextMessageOut(serializers.Serializer[Any]):
    """An earlier message in an agent's context, without its id and routing markers."""

    to = serializers.CharField(help_text="`all`, a name, or several names separated by commas.")
    content = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """Return the fields. `from` is a Python keyword, so it cannot be a class attribute."""
        return {"from": serializers.CharField(), **super().get_fields()}


class LeftOutOut(serializers.Serializer[Any]):
    """An earlier message that the agent does not see."""

    message = serializers.CharField(help_text="Id of the message in the team chat, `msg-N`.")
    reason = serializers.ChoiceField(
        choices=["window", "duplicate_of_current", "markers_only"],
        help_text=(
            "`window`: it and all messages before it are outside the window. "
            "`duplicate_of_current`: it repeats the newest message. `markers_only`: it has "
            "only routing markers."
        ),
    )


class AgentContextOut(serializers.Serializer[Any]):
    """The part of a chat that an agent sees."""

    contextMessages = ContextMessageOut(many=True)
    currentMessage = serializers.CharField()
    teamTask = serializers.CharField(allow_null=True)
    systemInstruction = serializers.CharField(allow_null=True)
    instructionFileText = serializers.CharField(allow_null=True)
    maxBytes = serializers.IntegerField()
    leftOut = LeftOutOut(many=True)


class AgentPromptOut(serializers.Serializer[Any]):
    """The prompt for an agent's client."""

    prompt = serializers.CharField()
    systemFlag = serializers.CharField(
        required=False,
        help_text=("System text for the client's system prompt option. Absent if there is none."),
    )
    omitted = serializers.IntegerField(
        help_text="Number of the oldest messages that were left out to stay within the limit."
    )


class SnapshotOut(serializers.Serializer[Any]):
    """A snapshot of a team chat."""

    messages = SnapshotMessageOut(many=True)
    teamTask = serializers.CharField(allow_null=True)
    timestamp = serializers.IntegerField(
        help_text="Time of the export, in milliseconds since 1970-01-01 UTC."
    )
    version = serializers.IntegerField(help_text="Version of the snapshot format, always 1.")


class AgentOut(serializers.Serializer[Any]):
    """An agent of a team."""

    role_id = serializers.CharField()
    name = serializers.CharField()
    type = serializers.ChoiceField(choices=["ai", "human"])
    agent_type = serializers.CharField()
    model = serializers.CharField(
        help_text="Id of the model that the agent uses. Empty: the chat's model."
    )
    instruction = serializers.CharField()
    instruction_file_text = serializers.CharField()
    prompt_form = serializers.ChoiceField(choices=PROMPT_FORMS)
    window_size = serializers.IntegerField()
    policy = serializers.CharField()
    rests = serializers.BooleanField()


class RosterOut(serializers.Serializer[Any]):
    """A team with its rules and agents."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    version = serializers.IntegerField()
    shared = serializers.BooleanField()
    routing = serializers.ChoiceField(choices=["all", "round_robin", "person"])
    independent = serializers.BooleanField()
    hop_limit = serializers.IntegerField()
    token_limit = serializers.IntegerField()
    seconds_limit = serializers.IntegerField()
    goes_on_after_failure = serializers.BooleanField()
    message_cap = serializers.IntegerField()
    max_bytes = serializers.IntegerField()
    task = serializers.CharField()
    agents = AgentOut(many=True)


class SavedRosterOut(RosterOut):
    """A saved team, with warnings."""

    warnings = serializers.ListField(child=serializers.CharField())


class RoundOut(serializers.Serializer[Any]):
    """A round of a team chat: the replies of agents to one message of a user."""

    id = serializers.UUIDField()
    status = serializers.CharField(help_text=f"One of {', '.join(Round.Status.values)}.")
    reason = serializers.CharField(
        help_text=(
            "Limit that ended the round: `hops` (replies), `tokens` or `time`. `only_this`: a "
            "single reply is regenerated. Empty otherwise."
        )
    )
    team_version = serializers.IntegerField()
    opening = serializers.UUIDField(
        allow_null=True,
        help_text="Id of the message that started the round. Null: it no longer exists.",
    )
    speakers = serializers.ListField(child=serializers.CharField())
    next = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "Names of the agents that reply next. In an ended round: of those that did not reply."
        ),
    )
    hops = serializers.IntegerField()
    hop_limit = serializers.IntegerField()
    tokens = serializers.IntegerField()
    unknown_names = serializers.ListField(child=serializers.CharField())
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
