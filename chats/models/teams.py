"""Teams, their versions and agents, and the rounds in which agents reply one after another."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from contextpolicy.engine.rounds import HOP_LIMIT, SECONDS_LIMIT, TOKEN_LIMIT
from contextpolicy.engine.team import MAX_BYTES, WINDOW_SIZE
from contextpolicy.models.base import Stored


class Team(Stored):
    """A team of agents, of one person or, without an owner, of everybody; its versions hold it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE
    )
    current = models.ForeignKey(
        "TeamVersion", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    # Offered for no new chat any more; chats that have it keep it.
    deleted_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.current.name if self.current else "team without a version"


class TeamVersion(Stored):
    """One immutable version of a team: its rules, and its agents. A round keeps the one it has."""

    class Routing(models.TextChoices):
        ALL = "all", "Everybody once, in their order"
        ROUND_ROBIN = "round_robin", "In turn, until the limit"
        PERSON = "person", "Whom a message names, else the first"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    name = models.CharField(max_length=100)
    routing = models.CharField(max_length=12, choices=Routing.choices, default=Routing.ALL)
    # Each reply sees the chat up to the message that began the round, none of the others.
    independent = models.BooleanField(default=False)
    hop_limit = models.PositiveIntegerField(default=HOP_LIMIT)
    token_limit = models.PositiveIntegerField(default=TOKEN_LIMIT)
    seconds_limit = models.PositiveIntegerField(default=SECONDS_LIMIT)
    goes_on_after_failure = models.BooleanField(default=True)
    # The most messages that stand in prompts; of more the oldest are archived. 0: all stand.
    message_cap = models.PositiveIntegerField(default=0, db_default=0)
    # The most bytes of an agent's prompt. 0, in versions from before the option: no limit for
    # replies of this server.
    max_bytes = models.PositiveIntegerField(default=MAX_BYTES, db_default=0)
    # The task of a chat that begins with this team.
    task = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["team", "number"], name="team_version_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.number}"


class Agent(Stored):
    """A member of one version of a team. Its role's id stays the same from version to version."""

    class Type(models.TextChoices):
        AI = "ai", "An agent"
        HUMAN = "human", "A person"

    class PromptForm(models.TextChoices):
        MESSAGES = "messages", "Messages, each in its own role"
        CLAUDE = "claude-code", "Claude: one text with tags"
        CODEX = "openai-codex", "Codex: one text with Markdown headings"
        GEMINI = "google-gemini", "Gemini: one text with titles in capitals"
        PLAIN = "plain", "Plain: one text with simple titles"

    version = models.ForeignKey(TeamVersion, on_delete=models.CASCADE, related_name="agents")
    place = models.PositiveIntegerField()
    role_id = models.CharField(max_length=80)
    name = models.CharField(max_length=60)
    type = models.CharField(max_length=5, choices=Type.choices, default=Type.AI)
    # The kind of program that asks for its prompt over REST.
    agent_type = models.CharField(max_length=60, blank=True, default="")
    # None: the model of the chat.
    model = models.ForeignKey(
        "contextpolicy.ModelSpec", null=True, blank=True, on_delete=models.SET_NULL
    )
    instruction = models.TextField(blank=True, default="")
    instruction_file_text = models.TextField(blank=True, default="")
    # The form of its prompts in rounds of this server; `messages` in agents from before it.
    prompt_form = models.CharField(
        max_length=20,
        choices=PromptForm.choices,
        default=PromptForm.MESSAGES,
        db_default="messages",
    )
    window_size = models.PositiveIntegerField(default=WINDOW_SIZE)
    # One more level of its prompts' policies, between the person's and the chat's.
    policy = models.ForeignKey(
        "contextpolicy.ContextPolicy", null=True, blank=True, on_delete=models.SET_NULL
    )
    rests = models.BooleanField(default=False)

    class Meta:
        ordering: ClassVar = ["place"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["version", "place"], name="agent_place_once"),
            models.UniqueConstraint(fields=["version", "role_id"], name="agent_role_once"),
        ]

    def __str__(self) -> str:
        return self.name


class Round(Stored):
    """The replies to one message of a person: who spoke, who is still to speak, how it ended.

    A round is this row and the turns that name it. It goes on in the transaction that ends a turn,
    so a worker that is killed loses nothing, and no reply is asked for twice.
    """

    class Status(models.TextChoices):
        RUNNING = "running", "Running"
        WAITING = "waiting", "Waiting for a person of the team"
        SETTLED = "settled", "Settled"
        LIMIT = "limit", "Limit reached"
        PAIR = "pair", "Two agents only answered each other"
        STOPPED = "stopped", "Stopped"
        FAILED = "failed", "A reply failed"
        REPLACED = "replaced", "Replaced by a newer message"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="rounds")
    version = models.ForeignKey(TeamVersion, on_delete=models.CASCADE, related_name="rounds")
    opening = models.ForeignKey(
        "Message", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    status = models.CharField(max_length=8, choices=Status.choices, default=Status.RUNNING)
    # The role ids of those who follow. Of a round at its limit: of those who would have.
    queue = models.JSONField(default=list)
    # The role ids of its replies, since the person last wrote.
    speakers = models.JSONField(default=list)
    passes = models.PositiveIntegerField(default=0)
    hops = models.PositiveIntegerField(default=0)
    tokens = models.PositiveIntegerField(default=0)
    # Why it is over, as far as its status does not say it: `hops`, `tokens`, `time`.
    reason = models.CharField(max_length=10, blank=True, default="")
    # Names that replies called and nobody has.
    unknown = models.JSONField(default=list)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["branch", "-started_at"], name="round_of_branch")]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["branch"], condition=Q(status="running"), name="one_running_round"
            ),
        ]

    def __str__(self) -> str:
        return f"round {self.pk} ({self.status})"
