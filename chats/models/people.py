"""Models for accounts: settings, sign-in links, failed sign-ins, API keys."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class AccountSettings(Stored):
    """Settings of an account's pages: time zone, colours and language."""

    class Appearance(models.TextChoices):
        SYSTEM = "system", gettext_lazy("System")
        LIGHT = "light", gettext_lazy("Light")
        DARK = "dark", gettext_lazy("Dark")

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    # For example "Europe/Berlin". Empty: UTC.
    time_zone = models.CharField(max_length=64, blank=True, default="")
    # The user chose the time zone; the browser's does not replace it.
    time_zone_chosen = models.BooleanField(default=False, db_default=False)
    appearance = models.CharField(
        max_length=8,
        choices=Appearance.choices,
        default=Appearance.SYSTEM,
        db_default=Appearance.SYSTEM,
    )
    # For example "zh-hans". Empty: the browser's language.
    language = models.CharField(max_length=16, blank=True, default="", db_default="")

    def __str__(self) -> str:
        return f"settings of {self.owner_id}"


class LoginLink(Stored):
    """A one-time link that signs a user in without a password. Only its hash is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    token_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    # Invitation link: a new user sets a password with it.
    invitation = models.BooleanField(default=False, db_default=False)

    def __str__(self) -> str:
        return f"login link {self.pk}"


class LoginFailure(Stored):
    """A failed sign-in. Deleted once rate limiting no longer needs it."""

    address = models.CharField(max_length=64)
    account = models.CharField(max_length=200)
    at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["address", "at"], name="failure_address"),
            models.Index(fields=["account", "at"], name="failure_account"),
        ]

    def __str__(self) -> str:
        return f"failed sign-in {self.pk}"


class ApiKey(Stored):
    """A named, scoped, expiring API key of a user. Only its hash and its prefix are stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=12)
    key_hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    # Pass-through: requests to /v1 create no chat and none of their text is stored.
    unmanaged = models.BooleanField(default=False, db_default=False)
    # Policy for chats that /v1 requests open without naming one. Empty: the owner's policy.
    policy = models.ForeignKey(
        "contextpolicy.ContextPolicy",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
