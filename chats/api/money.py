"""Sums of money in the outputs: by currency, and what is not known."""

from typing import Any

from rest_framework import serializers

from contextpolicy.engine.costs import Money


class AmountOut(serializers.Serializer[object]):
    """A sum in one currency."""

    currency = serializers.CharField(help_text="As the model's price names it; may be empty.")
    amount = serializers.DecimalField(max_digits=24, decimal_places=10)


class MoneyOut(serializers.Serializer[object]):
    """Sums by currency. Where `unknown` is not 0, the whole is not known."""

    amounts = AmountOut(many=True)
    unknown = serializers.IntegerField(help_text="How many more had no price.")


def money_json(money: Money) -> dict[str, Any]:
    """Return sums by currency."""
    amounts = [{"currency": name, "amount": money.amounts[name]} for name in sorted(money.amounts)]
    return {"amounts": amounts, "unknown": money.unknown}
