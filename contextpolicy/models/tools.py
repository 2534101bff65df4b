"""Tool servers (MCP), and the definitions of their tools as read and as approved."""

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored

# The maximum number of characters of a definition: its name, description and schema as JSON.
LONGEST_DEFINITION = 20_000


class ToolServer(Stored):
    """A server whose tools a model can call.

    A server over HTTP has an address, and a credential that is never shown again. A local server is
    started with a command from the setting `TOOL_COMMANDS`; the name of that command is stored
    here.
    """

    class Transport(models.TextChoices):
        HTTP = "http", gettext_lazy("Streamable HTTP")
        STDIO = "stdio", gettext_lazy("Local process (stdio)")

    slug = models.SlugField(max_length=30, unique=True, verbose_name=gettext_lazy("slug"))
    name = models.CharField(max_length=200, verbose_name=gettext_lazy("name"))
    transport = models.CharField(
        max_length=10,
        choices=Transport.choices,
        default=Transport.HTTP,
        verbose_name=gettext_lazy("transport"),
    )
    url = models.CharField(
        max_length=500, blank=True, default="", verbose_name=gettext_lazy("address")
    )
    command = models.CharField(
        max_length=60, blank=True, default="", verbose_name=gettext_lazy("command")
    )
    encrypted_key = models.TextField(blank=True, default="", editable=False)
    key_last_four = models.CharField(max_length=4, blank=True, default="", editable=False)
    enabled = models.BooleanField(default=True, verbose_name=gettext_lazy("enabled"))
    # The times at which definitions were requested and read, and the sentence of the last failure.
    asked_at = models.DateTimeField(null=True, blank=True, editable=False)
    read_at = models.DateTimeField(
        null=True, blank=True, editable=False, verbose_name=gettext_lazy("definitions read at")
    )
    failure = models.CharField(
        max_length=500,
        blank=True,
        default="",
        editable=False,
        verbose_name=gettext_lazy("last failure"),
    )
    failure_details = models.JSONField(default=dict, blank=True, editable=False)
    lease_token = models.CharField(max_length=43, blank=True, default="", editable=False)
    lease_until = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = gettext_lazy("tool server")
        verbose_name_plural = gettext_lazy("tool servers")
        ordering: ClassVar = ["slug"]

    def __str__(self) -> str:
        return self.name


class ToolDefinition(Stored):
    """A tool as its server described it when the definitions were last read.

    The tool is offered to models only while `digest` equals `approved_digest`. `tokens`
    counts the definition in a prompt, in local tokens.
    """

    server = models.ForeignKey(
        ToolServer,
        on_delete=models.CASCADE,
        related_name="tools",
        verbose_name=gettext_lazy("server"),
    )
    name = models.CharField(max_length=200, verbose_name=gettext_lazy("name"))
    # The name for models, whose servers allow 64 characters of few kinds.
    wire_name = models.CharField(
        max_length=64, unique=True, verbose_name=gettext_lazy("name in prompts")
    )
    description = models.TextField(blank=True, default="", verbose_name=gettext_lazy("description"))
    schema = models.JSONField(default=dict, verbose_name=gettext_lazy("schema"))
    # Statements of the server about its tool. Not verified.
    annotations = models.JSONField(
        default=dict, blank=True, verbose_name=gettext_lazy("annotations")
    )
    digest = models.CharField(max_length=64)
    approved_digest = models.CharField(max_length=64, blank=True, default="")
    tokens = models.PositiveIntegerField(default=0, verbose_name=gettext_lazy("tokens"))
    asks = models.BooleanField(
        default=True,
        db_default=True,
        verbose_name=gettext_lazy("requires consent"),
        help_text=gettext_lazy(
            "Each call waits until the chat’s owner allows it, once or for all later calls in "
            "the chat."
        ),
    )
    # False once the server no longer lists the tool.
    is_listed = models.BooleanField(default=True, verbose_name=gettext_lazy("listed by the server"))
    changed_at = models.DateTimeField(verbose_name=gettext_lazy("changed at"))

    class Meta:
        verbose_name = gettext_lazy("tool")
        verbose_name_plural = gettext_lazy("tools")
        ordering: ClassVar = ["wire_name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["server", "name"], name="tool_of_server_once")
        ]

    def __str__(self) -> str:
        return f"{self.server.slug}/{self.name}"

    @property
    def is_approved(self) -> bool:
        """True if an administrator approved the definition in its current form."""
        return bool(self.digest) and self.digest == self.approved_digest

    @property
    def is_idempotent(self) -> bool:
        """True if its server states that repeating a call has no further effect."""
        stated: dict[str, Any] = self.annotations
        return stated.get("idempotentHint") is True or stated.get("readOnlyHint") is True
