"""Steps that call tools of tool servers, their calls, and consents."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class ToolStep(Stored):
    """The reply of a step that calls tools of tool servers, stored before the first call.

    If the worker dies, another one continues from this row and does not call the model
    again. The row is deleted at the end of the step, when its parts are stored in the
    message.
    """

    turn = models.ForeignKey("Turn", on_delete=models.CASCADE, related_name="tool_steps")
    step = models.PositiveIntegerField()
    # The parts of the reply without results, the images of results (`turns.result_images`), and
    # the values that its receipt and its turn get at the end.
    parts = models.JSONField()
    receipt_id = models.UUIDField()
    usage = models.JSONField(default=dict)
    body_sha256 = models.CharField(max_length=64, blank=True, default="")
    first_token_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "step"], name="tool_step_once")
        ]


class ToolCall(Stored):
    """One call of a tool on a server, with its sizes and its outcome.

    `content` is the result until the step ends. Afterwards only the message contains it.
    """

    class Outcome(models.TextChoices):
        OPEN = "open", gettext_lazy("In progress")
        OK = "ok", gettext_lazy("Completed")
        ERROR = "error", gettext_lazy("Tool reported an error")
        REFUSED = "refused", gettext_lazy("Not called")
        FAILED = "failed", gettext_lazy("Failed before the call")
        UNKNOWN = "unknown", gettext_lazy("Outcome unknown")

    class Consent(models.TextChoices):
        NONE = "", gettext_lazy("Not required")
        WAITING = "waiting", gettext_lazy("Waiting")
        ALLOWED = "allowed", gettext_lazy("Allowed")
        DENIED = "denied", gettext_lazy("Denied")
        EXPIRED = "expired", gettext_lazy("Expired")

    turn = models.ForeignKey("Turn", on_delete=models.CASCADE, related_name="tool_calls")
    step = models.PositiveIntegerField()
    place = models.PositiveIntegerField()
    # The attempt of the turn that started the call; 0: not started.
    attempt = models.PositiveIntegerField()
    server = models.CharField(max_length=30, verbose_name=gettext_lazy("server"))
    tool = models.CharField(max_length=200, verbose_name=gettext_lazy("tool"))
    outcome = models.CharField(
        max_length=10,
        choices=Outcome.choices,
        default=Outcome.OPEN,
        verbose_name=gettext_lazy("outcome"),
    )
    consent = models.CharField(
        max_length=10, choices=Consent.choices, blank=True, default="", db_default=""
    )
    # Hash of the tool's definition that the user was asked about, and the deadline to answer.
    digest = models.CharField(max_length=64, blank=True, default="", db_default="")
    asked_until = models.DateTimeField(null=True)
    # The code of the reason why the call was refused or failed. Empty: neither.
    code = models.CharField(max_length=60, blank=True, default="")
    argument_bytes = models.PositiveIntegerField(default=0)
    result_bytes = models.PositiveIntegerField(default=0)
    milliseconds = models.PositiveIntegerField(null=True)
    started_at = models.DateTimeField()
    content = models.TextField(blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "step", "place"], name="tool_call_once")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["asked_until"], condition=Q(consent="waiting"), name="tool_call_waiting"
            )
        ]


class ToolConsent(Stored):
    """A user's consent to all later calls of a tool in a chat.

    It applies to the definition that the tool had at that time (`digest`).
    """

    chat = models.ForeignKey("Chat", on_delete=models.CASCADE, related_name="tool_consents")
    server = models.CharField(max_length=30)
    tool = models.CharField(max_length=200)
    digest = models.CharField(max_length=64)
    given_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["chat", "server", "tool"], name="tool_consent_once")
        ]
