"""The outputs of a chat as a team's, in the names that programs for agents use."""

from typing import Any

from rest_framework import serializers

from chats.api.team_inputs import PROMPT_FORMS
from chats.models import Round


class SpeakerOut(serializers.Serializer[Any]):
    """The one who says something."""

    roleId = serializers.CharField()
    roleName = serializers.CharField()
    type = serializers.ChoiceField(choices=["human", "ai"])


class RoutingOut(serializers.Serializer[Any]):
    """To whom a message goes; an empty list: to everybody."""

    resolvedAddressees = serializers.ListField(child=serializers.CharField())


class SnapshotMessageOut(serializers.Serializer[Any]):
    """A message as the team sees it."""

    id = serializers.CharField(help_text="`msg-N`, or the id it was imported with.")
    content = serializers.CharField(help_text="As it was said, with its markers.")
    speaker = SpeakerOut()
    routing = RoutingOut()


class TeamMessageOut(SnapshotMessageOut):
    """A message as the team sees it, and where it stands."""

    message = serializers.UUIDField(help_text="Its id everywhere else in this API.")
    createdAt = serializers.DateTimeField()


class TeamOut(serializers.Serializer[Any]):
    """The chat as a team's."""

    teamTask = serializers.CharField(allow_null=True)
    notice = serializers.CharField(help_text="Says how much of a long task was kept; else empty.")
    messageCount = serializers.IntegerField()
    latestMessage = TeamMessageOut(allow_null=True)


class ContextMessageOut(serializers.Serializer[Any]):
    """An earlier message as an agent is shown it: without an id and without markers."""

    to = serializers.CharField(help_text="`all`, a name, or names with commas between.")
    content = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        """Return the fields; `from` is no name that Python lets a class have."""
        return {"from": serializers.CharField(), **super().get_fields()}


class LeftOutOut(serializers.Serializer[Any]):
    """An earlier message that the agent is not shown."""

    message = serializers.CharField(help_text="Its id in the team's view.")
    reason = serializers.ChoiceField(
        choices=["window", "duplicate_of_current", "markers_only"],
        help_text="`window` names the newest of all that stand before the window.",
    )


class AgentContextOut(serializers.Serializer[Any]):
    """The part of a chat that one agent is shown."""

    contextMessages = ContextMessageOut(many=True)
    currentMessage = serializers.CharField()
    teamTask = serializers.CharField(allow_null=True)
    systemInstruction = serializers.CharField(allow_null=True)
    instructionFileText = serializers.CharField(allow_null=True)
    maxBytes = serializers.IntegerField()
    leftOut = LeftOutOut(many=True)


class AgentPromptOut(serializers.Serializer[Any]):
    """The prompt for an agent's program."""

    prompt = serializers.CharField()
    systemFlag = serializers.CharField(
        required=False, help_text="For the program's system option, where it has one."
    )
    omitted = serializers.IntegerField(help_text="The oldest messages that gave way to the limit.")


class SnapshotOut(serializers.Serializer[Any]):
    """A team's chat, written down."""

    messages = SnapshotMessageOut(many=True)
    teamTask = serializers.CharField(allow_null=True)
    timestamp = serializers.IntegerField(help_text="Milliseconds since 1970.")
    version = serializers.IntegerField(help_text="1.")


class AgentOut(serializers.Serializer[Any]):
    """An agent of a team."""

    role_id = serializers.CharField()
    name = serializers.CharField()
    type = serializers.ChoiceField(choices=["ai", "human"])
    agent_type = serializers.CharField()
    model = serializers.CharField(help_text="Empty: the chat's.")
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
    """A stored team, and what to know about it."""

    warnings = serializers.ListField(child=serializers.CharField())


class RoundOut(serializers.Serializer[Any]):
    """A round: the replies of agents to one message of a person."""

    id = serializers.UUIDField()
    status = serializers.CharField(help_text=f"One of {', '.join(Round.Status.values)}.")
    reason = serializers.CharField(
        help_text="Of a limit: `hops`, `tokens` or `time`. `only_this`: one agent replied again."
    )
    team_version = serializers.IntegerField()
    opening = serializers.UUIDField(allow_null=True, help_text="The message that began it.")
    speakers = serializers.ListField(child=serializers.CharField())
    next = serializers.ListField(
        child=serializers.CharField(), help_text="Who is to follow, or would have followed."
    )
    hops = serializers.IntegerField()
    hop_limit = serializers.IntegerField()
    tokens = serializers.IntegerField()
    unknown_names = serializers.ListField(child=serializers.CharField())
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
