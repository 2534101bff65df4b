"""Forms of the setup page: a model server, and the prices of its models."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django import forms
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from chats.models import ProviderAccount
from chats.providers import kinds, prices
from chats.web.forms import OptionField, PageForm, TextField, build_text_input, format_code
from contextpolicy.models import ModelSpec


class KindSelect(forms.Select):
    """A list in which kinds whose package is not installed cannot be chosen."""

    def create_option(self, *args: Any, **options: Any) -> dict[str, Any]:
        option = super().create_option(*args, **options)
        if option["value"] in list_missing_kinds():
            option["attrs"]["disabled"] = True
        return option


class ServerForm(PageForm):
    """Address, key and name of a model server. `edited`: the connected server to edit."""

    kind = OptionField(
        label="API",
        choices=[(kind, ProviderAccount.Kind(kind).label) for kind in kinds.SERVERS],
        widget=KindSelect,
    )
    base_url = TextField(
        label=gettext_lazy("Address"),
        required=False,
        widget=forms.URLInput(
            attrs={"placeholder": "https://api.example.com/v1", "autocomplete": "off"}
        ),
    )
    # Pages never contain the value of a password input.
    api_key = TextField(
        label=gettext_lazy("Key"),
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
    name = TextField(
        label=gettext_lazy("Name"),
        required=False,
        max_length=200,
        help_text=gettext_lazy(
            "Pages show the server under this name. Up to 200 characters. Default: the host name."
        ),
        widget=build_text_input(),
    )

    def __init__(self, *args: Any, edited: ProviderAccount | None = None, **options: Any) -> None:
        if edited is not None:
            options["initial"] = {"name": edited.name, "base_url": edited.base_url}
        super().__init__(*args, auto_id="server-%s", **options)
        if edited is not None:
            del self.fields["kind"]
        elif list_missing_kinds():
            self.fields["kind"].help_text = gettext(kinds.PackageMissing.sentence)
        self.fields["base_url"].help_text = build_address_help(edited)
        self.fields["api_key"].help_text = build_key_help(edited)


def list_missing_kinds() -> list[str]:
    return [kind for kind in kinds.SERVERS if not kinds.is_kind_installed(kind)]


def build_address_help(edited: ProviderAccount | None) -> SafeString:
    sentences: list[str] = []
    if edited is None or edited.kind != ProviderAccount.Kind.ANTHROPIC:
        words = gettext(
            "The base URL is everything before {end}, including {version} if there is one."
        )
        sentences.append(
            format_html(words, end=format_code("/chat/completions"), version=format_code("/v1"))
        )
    if edited is None or edited.kind == ProviderAccount.Kind.ANTHROPIC:
        words = gettext(
            "For the Anthropic API, the base URL is everything before {end}. Empty: Anthropic’s "
            "own server."
        )
        sentences.append(format_html(words, end=format_code("/v1/messages")))
    if edited is not None and edited.key_last_four:
        sentences.append(
            gettext(
                "A key is sent only to the server that it was entered for. If you change the "
                "scheme, host or port of the address, also enter a new key. Otherwise, the "
                "stored key is deleted."
            )
        )
    return format_html(" ".join(["{}"] * len(sentences)), *sentences)


def build_key_help(edited: ProviderAccount | None) -> str:
    if edited is not None and edited.key_last_four:
        return gettext(
            "The key is stored encrypted and never shown again. Leave this field empty to keep the "
            "key that ends with %(end)s."
        ) % {"end": edited.key_last_four}
    return gettext(
        "The key is stored encrypted and never shown again. Leave this field empty if the server "
        "needs no key."
    )


class PricesForm(PageForm):
    """The prices of one model and their currency."""

    currency = TextField(
        label=gettext_lazy("Currency"),
        required=False,
        max_length=8,
        widget=forms.TextInput(attrs={"size": 5, "autocomplete": "off"}),
    )

    def __init__(self, *args: Any, model: ModelSpec, **options: Any) -> None:
        self.model = model
        stored = {name: format_price(getattr(model, name)) for name in prices.PRICES}
        super().__init__(
            *args,
            prefix=model.slug,
            initial={**stored, "currency": model.currency},
            **options,
        )
        attributes = {"class": "input", "inputmode": "decimal", "size": 8, "autocomplete": "off"}
        for name, label in prices.PRICES.items():
            self.fields[name] = TextField(
                label=label,
                required=False,
                max_length=20,
                widget=forms.TextInput(attrs=attributes),
            )
        self.order_fields([*prices.PRICES, "currency"])

    def read_values(self) -> dict[str, Any]:
        """Return the typed values, without those that were not sent.

        A model that was added after the page was loaded has no values in the request.
        """
        values = super().read_values()
        return {name: value for name, value in values.items() if self.add_prefix(name) in self.data}


def build_price_forms(models: Iterable[ModelSpec], *, sent: Any = None) -> list[PricesForm]:
    """Return a form for each model, with the typed values if `sent` is the data of a request."""
    return [PricesForm(sent, model=model) for model in models]


def format_price(price: Decimal | None) -> str:
    """Format a price without trailing zeros; empty if not set."""
    return "" if price is None else f"{price.normalize():f}"
