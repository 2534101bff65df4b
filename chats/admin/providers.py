"""The administration's pages of providers and models. A stored key is never shown."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from chats.admin.confirm import confirmation, each
from chats.admin.fresh import FreshSignInAdmin
from chats.ground.refusals import Refusal
from chats.models import ProviderAccount
from chats.providers import accounts, kinds, model_specs
from chats.providers.address import AddressRefused
from chats.turns import overflow_learning
from contextpolicy.admin.bases import DomainAdmin
from contextpolicy.admin.site import actor_of
from contextpolicy.models import ModelSpec


class ProviderAccountForm(forms.ModelForm[ProviderAccount]):
    """An account; the key's field is always empty, whatever is stored."""

    api_key = forms.CharField(
        label="Key",
        required=False,
        max_length=500,
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "new-password"}),
        help_text="Write-only. Leave it empty to keep the stored key.",
    )
    forget_key = forms.BooleanField(label="Forget the stored key", required=False)

    class Meta:
        model = ProviderAccount
        fields = ("slug", "name", "kind", "base_url", "enabled", "warm_up")

    def clean_api_key(self) -> str:
        """Check that a key can stand in a header; raises ValidationError if it cannot."""
        try:
            return accounts.plain_key(self.cleaned_data["api_key"])
        except accounts.KeyNotPlain as refusal:
            raise forms.ValidationError(refusal.sentence) from None

    def clean(self) -> dict[str, Any]:
        """Check that the address may be called; the demo model has none."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        kind = cleaned.get("kind", "")
        if kind in kinds.SERVERS:
            try:
                if "kind" in self.changed_data:
                    kinds.require(kind)
                accounts.checked_url(cleaned.get("base_url", ""), kind=kind)
            except (AddressRefused, kinds.PackageMissing) as refusal:
                self.add_error(refusal.param, refusal.sentence)
        return cleaned


class ProviderAccountAdmin(FreshSignInAdmin):
    """Model servers: address, key, whether they are in use."""

    form = ProviderAccountForm
    refusals = (Refusal,)
    actions = ("fetch_models",)
    list_display = ("name", "kind", "base_url", "stored_key", "enabled", "paused_until")
    fieldsets = (
        (None, {"fields": ("name", "slug", "kind", "enabled")}),
        (
            "Server",
            {
                "fields": ("base_url", "api_key", "stored_key", "forget_key"),
                "description": "A key is only ever sent to the server it was entered for: another "
                "scheme, host or port clears it, unless a new one is entered with it. Without an "
                "address an account of Anthropic’s interface is Anthropic’s own.",
            },
        ),
        ("Background", {"fields": ("warm_up",)}),
        ("State", {"fields": ("paused_until", "paused_reason")}),
    )
    readonly_fields = ("stored_key", "paused_until", "paused_reason")

    def get_readonly_fields(
        self, request: HttpRequest, obj: ProviderAccount | None = None
    ) -> tuple[str, ...]:
        """Keep the slug of a stored account: models name their provider by it."""
        return self.readonly_fields if obj is None else ("slug", *self.readonly_fields)

    def get_prepopulated_fields(
        self, request: HttpRequest, obj: ProviderAccount | None = None
    ) -> dict[str, Sequence[str]]:
        """Let the slug follow the name only while the account is new."""
        return {"slug": ("name",)} if obj is None else {}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Store the account through the one function that may."""
        had_key = bool(obj.encrypted_key)
        accounts.save_account(
            account=obj,
            values={name: form.cleaned_data[name] for name in accounts.ACCOUNT_FIELDS},
            api_key=form.cleaned_data["api_key"],
            forget_key=form.cleaned_data["forget_key"],
            actor=actor_of(request),
            now=timezone.now(),
        )
        if had_key and not obj.encrypted_key:
            self.message_user(request, "The stored key was cleared.", messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: ProviderAccount) -> None:
        """Remove it, its key, and switch its models off."""
        accounts.delete_account(account=obj, actor=actor_of(request), now=timezone.now())

    def has_fetch_permission(self, request: HttpRequest) -> bool:
        """Allow people who may change an account to ask its server."""
        return self.has_change_permission(request)

    @admin.action(description="Ask the server for its models", permissions=["fetch"])
    def fetch_models(self, request: HttpRequest, queryset: QuerySet[ProviderAccount]) -> None:
        """Add what each server offers; a server that fails is named."""
        for account in queryset.filter(kind__in=kinds.SERVERS):
            try:
                added = accounts.refresh_models(
                    account=account, actor=actor_of(request), now=timezone.now()
                )
            except Refusal as refusal:
                self.message_user(request, f"{account}: {refusal.sentence}", messages.ERROR)
            else:
                self.message_user(request, f"{account}: {len(added)} new models.")

    @admin.display(description="Stored key")
    def stored_key(self, account: ProviderAccount) -> str:
        """Return the key's last four characters, if it is long enough to show them."""
        if not account.encrypted_key:
            return "none"
        return f"…{account.key_last_four}" if account.key_last_four else "stored"


class ModelSpecForm(forms.ModelForm[ModelSpec]):
    """A model; its provider is chosen from the accounts.

    The default is a field of the form, not of the model, whose constraint would refuse a second
    one; here a new default takes the place of the one before.
    """

    provider = forms.ChoiceField(choices=lambda: _providers())
    answers_by_default = forms.BooleanField(
        label="Default", required=False, help_text="Answers in chats that chose no model."
    )

    forget_calibration = forms.BooleanField(
        label="Forget the calibration",
        required=False,
        help_text="Begin again with our own count, for example after the server behind the name "
        "was exchanged.",
    )

    class Meta:
        model = ModelSpec
        fields = ("slug", "provider", "name")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.setdefault("answers_by_default", self.instance.is_default)


class ModelSpecAdmin(DomainAdmin):
    """Models: limits, prices, which one is the default."""

    form = ModelSpecForm
    actions = ("forget_limit",)
    list_display = (
        "label_or_name",
        "provider",
        "context_window",
        "learned_window",
        "enabled",
        "is_default",
    )
    list_filter = ("enabled", "provider")
    search_fields = ("name", "label", "slug")
    fieldsets = (
        (None, {"fields": ("slug", "provider", "name", "label", "enabled", "answers_by_default")}),
        (
            "Limits",
            {"fields": ("context_window", "learned_window", "max_output")},
        ),
        ("Server", {"fields": ("supports_tools", "strict_roles", "cannot_stream", "thinking")}),
        ("Programs", {"fields": ("embeds",)}),
        (
            "Price",
            {
                "fields": (
                    ("input_price", "output_price"),
                    ("cached_price", "written_price"),
                    "currency",
                ),
                "description": "Per million tokens. What is read from a provider’s cache and "
                "written to it is a part of the input. Calls are priced as they are counted: "
                "another price changes nothing that was counted before. Without a price a cost is "
                "unknown, not nothing.",
            },
        ),
        ("Learned", {"fields": ("learned_calibration", "forget_calibration")}),
    )
    readonly_fields = ("learned_calibration", "learned_window")

    def get_readonly_fields(
        self, request: HttpRequest, obj: ModelSpec | None = None
    ) -> tuple[str, ...]:
        """Keep the slug of a stored model: policies name models by it."""
        return self.readonly_fields if obj is None else ("slug", *self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a model is switched off; turns and policies name it."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Store the model through the one function that may."""
        obj.is_default = form.cleaned_data["answers_by_default"]
        model_specs.save_model(
            model=obj,
            actor=actor_of(request),
            now=timezone.now(),
            forget_calibration=form.cleaned_data["forget_calibration"],
        )

    @admin.display(description="Calibration")
    def learned_calibration(self, model: ModelSpec) -> str:
        """Say how many of the provider's tokens are one of ours, and how many replies taught it."""
        if not model.calibration_samples:
            return "Nothing learned yet: our count is taken as it is."
        replies = f"{model.calibration_samples:,} replies"
        if model.calibration_samples == 1:
            replies = "1 reply"
        scripts = ", ".join(
            f"{name} {factor:.3f}" for name, factor in sorted(model.calibration_by_script.items())
        )
        by_script = f" By script: {scripts}." if scripts else ""
        return (
            f"{model.calibration:.3f}: for 1,000 tokens of our count the provider counts about "
            f"{round(1000 * model.calibration):,}. Learned from {replies}.{by_script}"
        )

    @admin.action(description="Forget the learned limit", permissions=["change"])
    def forget_limit(
        self, request: HttpRequest, queryset: QuerySet[ModelSpec]
    ) -> HttpResponse | None:
        """Believe the models' own windows again, after asking."""
        rows = queryset.exclude(learned_window=None)
        asked = confirmation(
            self,
            request,
            rows,
            title="Forget the learned limit",
            sentence="Prompts for these models are again composed for the window that is entered "
            "for them. The next overflow teaches a limit anew.",
        )
        if asked is not None:
            return asked
        actor, now = actor_of(request), timezone.now()
        each(
            self,
            request,
            rows,
            deed=lambda row: overflow_learning.forget(model=row, actor=actor, now=now),
            done="its own window counts again.",
        )
        return None

    @admin.display(description="Model", ordering="name")
    def label_or_name(self, model: ModelSpec) -> str:
        """Name the model as people see it."""
        return str(model)


def _providers() -> list[tuple[str, str]]:
    return list(ProviderAccount.objects.values_list("slug", "name"))
