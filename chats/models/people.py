"""Rows about signing in: links, failures, API keys."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models

from contextpolicy.models.base import Stored


class AccountSettings(Stored):
    """Settings of a person's account, for their pages and prompts."""

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    # Set from the browser, such as "Europe/Berlin". Empty: UTC.
    time_zone = models.CharField(max_length=64, blank=True, default="")

    def __str__(self) -> str:
        return f"settings of {self.owner_id}"


class LoginLink(Stored):
    """A one-time link that signs a person in without a password. Only its hash is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    token_hash = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    # The link of an invitation, with which a new person sets a password.
    invitation = models.BooleanField(default=False, db_default=False)

    def __str__(self) -> str:
        return f"login link {self.pk}"


class LoginFailure(Stored):
    """One failed sign-in, kept as long as the throttle needs it."""

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
    """A named, scoped, expiring key of one person. Only its hash and its first letters stay."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=12)
    key_hash = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    # Its requests to /v1 are passed on as they came: no chat, none of their words is stored.
    unmanaged = models.BooleanField(default=False, db_default=False)
    # For chats that its requests to /v1 open without naming a policy; empty: as for its owner.
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
