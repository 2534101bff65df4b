"""Amounts of money by currency."""

from typing import Any

from rest_framework import serializers

from contextpolicy.engine.policy.costs import Money


class AmountOut(serializers.Serializer[object]):
    """An amount of money in one currency, as a decimal string."""

    currency = serializers.CharField(
        help_text=(
            "Currency of the model's price, such as `USD`. Empty: the price has no currency."
        )
    )
    amount = serializers.DecimalField(
        max_digits=24, decimal_places=10, help_text="Amount as a decimal string."
    )


class MoneyOut(serializers.Serializer[object]):
    """Amounts by currency. If `unknown` is not 0, the total is incomplete."""

    amounts = AmountOut(many=True, help_text="One amount for each currency.")
    unknown = serializers.IntegerField(
        help_text=(
            "Number of calls or summaries that `amounts` excludes, because no price is known or "
            "the provider reported no usage."
        )
    )


def serialize_money(money: Money) -> dict[str, Any]:
    amounts = [{"currency": name, "amount": money.amounts[name]} for name in sorted(money.amounts)]
    return {"amounts": amounts, "unknown": money.unknown}
