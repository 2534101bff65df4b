"""Admin pages of providers and models. A stored key is never shown."""

import re
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, ngettext, pgettext

from chats.admin.bases import DomainAdmin
from chats.admin.confirm import apply_confirmed, format_row_message
from chats.admin.policies.choices import list_tool_choices
from chats.admin.policies.form_fields import AllowListField
from chats.admin.reauthentication import FreshSignInAdmin
from chats.admin.site import get_request_actor
from chats.ground.refusals import Refusal
from chats.models import ProviderAccount
from chats.providers import account_refusals, accounts, kinds, model_specs
from chats.providers.address import AddressRefused
from chats.turns import overflow_learning
from contextpolicy.models import ModelSpec
from contextpolicy.models.specs import split_tool_types
from contextpolicy.wording import join_items, join_sentences

# The form of the type of a tool, such as "web_search_20250305".
TOOL_TYPE = re.compile(r"[A-Za-z$][\w$.:-]{0,63}", re.ASCII)
NOT_CALIBRATED = gettext_lazy("Not calibrated yet: token counts are used unchanged.")


class ProviderAccountForm(forms.ModelForm[ProviderAccount]):
    """An account form that never shows the stored key."""

    api_key = forms.CharField(
        label=gettext_lazy("Key"),
        required=False,
        max_length=500,
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy(
            "The key is stored encrypted and never shown. Leave this field empty to keep the "
            "stored key."
        ),
    )
    forget_key = forms.BooleanField(label=gettext_lazy("Delete the stored key"), required=False)

    class Meta:
        model = ProviderAccount
        fields = ("slug", "name", "kind", "base_url", "enabled", "warm_up")

    def clean_api_key(self) -> str:
        """Return the key; raises ValidationError if it is not valid in a header."""
        try:
            return accounts.strip_api_key(self.cleaned_data["api_key"])
        except account_refusals.KeyNotPlain as refusal:
            raise forms.ValidationError(refusal.localized) from None

    def clean(self) -> dict[str, Any]:
        """Check that requests to the address are allowed. The demo model has no address."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        kind = cleaned.get("kind", "")
        if kind in kinds.SERVERS:
            try:
                if "kind" in self.changed_data:
                    kinds.require_kind(kind)
                accounts.check_server_url(cleaned.get("base_url", ""), kind=kind)
            except (AddressRefused, kinds.PackageMissing) as refusal:
                self.add_error(refusal.param, refusal.localized)
        return cleaned


class ProviderAccountAdmin(FreshSignInAdmin):
    """Model servers: address, key and status."""

    form = ProviderAccountForm
    refusals = (Refusal,)
    actions = ("fetch_models",)
    list_display = ("name", "kind", "base_url", "stored_key", "enabled", "paused_until")
    fieldsets = (
        (None, {"fields": ("name", "slug", "kind", "enabled")}),
        (
            gettext_lazy("Server"),
            {
                "fields": ("base_url", "api_key", "stored_key", "forget_key"),
                "description": gettext_lazy(
                    "A key is sent only to the server that it was entered for. If you "
                    "change the scheme, host or port of the base URL, also enter a new "
                    "key. Otherwise, the stored key is deleted. If the base URL of an "
                    "Anthropic account is empty, Anthropic’s own server is used."
                ),
            },
        ),
        (gettext_lazy("Cache warm-ups"), {"fields": ("warm_up",)}),
        (gettext_lazy("State"), {"fields": ("paused_until", "pause_reason")}),
    )
    readonly_fields = ("stored_key", "paused_until", "pause_reason")

    def get_readonly_fields(
        self, request: HttpRequest, obj: ProviderAccount | None = None
    ) -> tuple[str, ...]:
        """Make the slug of a saved account read-only, because models refer to it."""
        return self.readonly_fields if obj is None else ("slug", *self.readonly_fields)

    def get_prepopulated_fields(
        self, request: HttpRequest, obj: ProviderAccount | None = None
    ) -> dict[str, Sequence[str]]:
        """Derive the slug from the name, but only for a new account."""
        return {"slug": ("name",)} if obj is None else {}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        had_key = bool(obj.encrypted_key)
        accounts.save_provider_account(
            account=obj,
            values={name: form.cleaned_data[name] for name in accounts.ACCOUNT_FIELDS},
            api_key=form.cleaned_data["api_key"],
            forget_key=form.cleaned_data["forget_key"],
            actor=get_request_actor(request),
            now=timezone.now(),
        )
        if had_key and not obj.encrypted_key:
            message = gettext(
                "The stored API key of this server was deleted. Requests to it are sent without a "
                "key."
            )
            self.message_user(request, message, messages.WARNING, "key_deleted")

    def delete_model(self, request: HttpRequest, obj: ProviderAccount) -> None:
        """Delete the account and its key, and disable its models."""
        accounts.delete_account(account=obj, actor=get_request_actor(request), now=timezone.now())

    def has_fetch_permission(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request)

    @admin.action(description=gettext_lazy("Fetch models from the server"), permissions=["fetch"])
    def fetch_models(self, request: HttpRequest, queryset: QuerySet[ProviderAccount]) -> None:
        """Add the models of each selected server. Each failed server gets an error message."""
        for account in queryset.filter(kind__in=kinds.SERVERS):
            try:
                added = accounts.refresh_models(
                    account=account, actor=get_request_actor(request), now=timezone.now()
                )
            except Refusal as refusal:
                message = format_row_message(str(account), refusal.localized)
                self.message_user(request, message, messages.ERROR)
            else:
                message = ngettext("{n} new model.", "{n} new models.", len(added)).format(
                    n=len(added)
                )
                self.message_user(request, format_row_message(str(account), message))

    @admin.display(description=gettext_lazy("reason for the pause"), empty_value="-")
    def pause_reason(self, account: ProviderAccount) -> str:
        """Return why calls are paused, in the reader's language; empty if they are not."""
        return account.localized_pause

    @admin.display(description=gettext_lazy("Stored key"))
    def stored_key(self, account: ProviderAccount) -> str:
        """Return the last four characters of the key; none for a short key."""
        if not account.encrypted_key:
            return pgettext("key of a server", "none")
        return f"…{account.key_last_four}" if account.key_last_four else gettext("stored")


class ModelSpecForm(forms.ModelForm[ModelSpec]):
    """A model form with a choice of provider accounts.

    The default is a field of the form, not of the model, whose constraint would reject a second
    default. Saving moves the default to this model.
    """

    provider = forms.ChoiceField(label=gettext_lazy("Provider"), choices=lambda: _providers())
    answers_by_default = forms.BooleanField(
        label=gettext_lazy("Default"),
        required=False,
        help_text=gettext_lazy(
            "This model replies in chats without a chosen model. Only one model can be the default."
        ),
    )

    forget_calibration = forms.BooleanField(
        label=gettext_lazy("Reset the calibration"),
        required=False,
        help_text=gettext_lazy(
            "Uses uncalibrated token counts until new replies are counted. Select this if the "
            "server was replaced, for example."
        ),
    )

    tools = AllowListField(
        label=gettext_lazy("Allowed MCP tools"),
        help_text=gettext_lazy(
            "The model can call only these MCP tools, and only if the policies allow them. Empty: "
            "all MCP tools that the policies allow."
        ),
        required=False,
        choices=list_tool_choices,
        widget=forms.CheckboxSelectMultiple,
    )

    class Meta:
        model = ModelSpec
        fields = ("slug", "provider", "name", "tools")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["tools"] = AllowListField.prepare_list(self.instance.tools)
        self.initial.setdefault("answers_by_default", self.instance.is_default)

    def clean_hosted_tools(self) -> str:
        """Return the types in a uniform format; raises ValidationError for an invalid type.

        The built-in types `function` and `custom` are invalid here.
        """
        types = split_tool_types(self.cleaned_data["hosted_tools"])
        for name in types:
            if not TOOL_TYPE.fullmatch(name) or name in ("function", "custom"):
                raise forms.ValidationError(
                    gettext(
                        "“{name}” cannot be a hosted tool. Enter tool types of the provider’s "
                        "API, such as “web_search”, but not “function” or “custom”."
                    ).format(name=name)
                )
        # Stored, and split again by `split_tool_types`.
        return ", ".join(types)


class ModelSpecAdmin(DomainAdmin):
    """Models: limits, prices and the default."""

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
            gettext_lazy("Limits"),
            {"fields": ("context_window", "learned_window", "max_output")},
        ),
        (
            gettext_lazy("Server"),
            {
                "fields": (
                    "supports_tools",
                    "tools",
                    "hosted_tools",
                    "takes_images",
                    "strict_roles",
                    "cannot_stream",
                    "thinking",
                )
            },
        ),
        (gettext_lazy("Embeddings"), {"fields": ("embeds",)}),
        (
            gettext_lazy("Price"),
            {
                "fields": (
                    ("input_price", "output_price"),
                    ("cached_price", "written_price"),
                    "currency",
                ),
                "description": gettext_lazy(
                    "Prices are per million tokens. The input includes tokens read from or "
                    "written to the provider’s cache. A new price applies to new calls only. "
                    "Without a price, the cost is unknown."
                ),
            },
        ),
        (gettext_lazy("Learned values"), {"fields": ("learned_calibration", "forget_calibration")}),
    )
    readonly_fields = ("learned_calibration", "learned_window")

    def get_readonly_fields(
        self, request: HttpRequest, obj: ModelSpec | None = None
    ) -> tuple[str, ...]:
        """Make the slug of a saved model read-only, because policies refer to it."""
        return self.readonly_fields if obj is None else ("slug", *self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because turns and policies refer to models. They are disabled instead."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        obj.is_default = form.cleaned_data["answers_by_default"]
        model_specs.save_model(
            model=obj,
            actor=get_request_actor(request),
            now=timezone.now(),
            forget_calibration=form.cleaned_data["forget_calibration"],
        )

    @admin.display(description=gettext_lazy("Calibration"))
    def learned_calibration(self, model: ModelSpec) -> str:
        """Return the calibration factor, and the number of replies from which it was learned."""
        if not model.calibration_samples:
            return str(NOT_CALIBRATED)
        factor = gettext(
            "{factor:.3f}: the provider counts about {tokens:,} tokens where Palimpsest counts "
            "1,000."
        ).format(factor=model.calibration, tokens=round(1000 * model.calibration))
        learned = ngettext(
            "Learned from {n:,} reply.", "Learned from {n:,} replies.", model.calibration_samples
        ).format(n=model.calibration_samples)
        scripts = join_items(
            f"{name} {factor:.3f}" for name, factor in sorted(model.calibration_by_script.items())
        )
        by_script = gettext("By script: {scripts}.").format(scripts=scripts) if scripts else ""
        return join_sentences(factor, learned, by_script)

    @admin.action(description=gettext_lazy("Reset learned window"), permissions=["change"])
    def forget_limit(
        self, request: HttpRequest, queryset: QuerySet[ModelSpec]
    ) -> HttpResponse | None:
        """Reset learned windows of the selected models, after confirmation.

        Their configured context windows apply again.
        """
        rows = queryset.exclude(learned_window=None)
        actor, now = get_request_actor(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            rows,
            title=gettext("Reset learned window"),
            sentence=gettext(
                "Prompts for these models use the configured context window again. The next "
                "prompt that the server refuses as too long sets a new limit."
            ),
            action=lambda row: overflow_learning.reset_learned_window(
                model=row, actor=actor, now=now
            ),
            done=gettext("learned window reset."),
        )

    @admin.display(description=gettext_lazy("Model"), ordering="name")
    def label_or_name(self, model: ModelSpec) -> str:
        return str(model)


def _providers() -> list[tuple[str, str]]:
    return list(ProviderAccount.objects.values_list("slug", "name"))
