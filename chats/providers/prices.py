"""Sets the prices of a server's models from submitted text."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation

from django.db import transaction
from django.utils.functional import Promise
from django.utils.translation import gettext_noop, pgettext_lazy

from chats.ground.refusals import Refusal
from chats.models import ProviderAccount
from chats.providers.model_specs import save_model
from contextpolicy.models import ModelSpec

# The price columns with their labels.
PRICES: Mapping[str, Promise] = {
    "input_price": pgettext_lazy("price", "Input"),
    "cached_price": pgettext_lazy("price", "Cached input"),
    "written_price": pgettext_lazy("price", "Cache write"),
    "output_price": pgettext_lazy("price", "Output"),
}
MOST = Decimal(1_000_000)
CURRENCY_LENGTH = 8


class PriceNotRead(Refusal):
    """A price is not a valid number. The error message names the model."""

    code = "invalid_price"
    status = 422
    sentence = gettext_noop(
        "The price “{typed}” of {model} is not valid. Enter a number from 0 to 999,999 with a "
        "decimal point and at most six decimals. Leave the field empty if the price is unknown."
    )


class CurrencyNotRead(Refusal):
    """A currency is too long or contains invalid characters."""

    code = "invalid_currency"
    status = 422
    sentence = gettext_noop(
        "A currency has at most {limit} letters or signs, such as USD or €, and no spaces. "
        "Correct the currency."
    )


def set_prices(
    *,
    account: ProviderAccount,
    typed: Mapping[str, Mapping[str, str]],
    actor: str,
    now: datetime,
) -> int:
    """Store the prices of an account's models. Return the number of changed models.

    `typed` has the columns of each model as text, by slug. Missing columns stay unchanged.
    Raises `PriceNotRead` and `CurrencyNotRead`; then nothing is stored.
    """
    changed = 0
    with transaction.atomic():
        for model in ModelSpec.objects.filter(provider=account.slug, slug__in=typed):
            said = typed[model.slug]
            wanted: dict[str, Decimal | str | None] = {
                name: parse_price(said[name], model=model) for name in PRICES if name in said
            }
            if "currency" in said:
                wanted["currency"] = parse_currency(said["currency"])
            if all(getattr(model, name) == value for name, value in wanted.items()):
                continue
            for name, value in wanted.items():
                setattr(model, name, value)
            save_model(model=model, actor=actor, now=now)
            changed += 1
    return changed


def parse_price(text: str, *, model: ModelSpec) -> Decimal | None:
    """Parse a price; None for empty text. Raises `PriceNotRead`."""
    typed = text.strip()
    if not typed:
        return None
    try:
        price = Decimal(typed)
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or not 0 <= price < MOST or price != round(price, 6):
        raise PriceNotRead(typed=typed[:40], model=str(model))
    return price


def parse_currency(text: str) -> str:
    """Parse a currency, which may be empty. Raises `CurrencyNotRead`."""
    typed = text.strip()
    if len(typed) > CURRENCY_LENGTH or not typed.isprintable() or " " in typed:
        raise CurrencyNotRead(limit=CURRENCY_LENGTH)
    return typed
