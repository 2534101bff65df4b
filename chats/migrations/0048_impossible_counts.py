"""Takes impossible numbers of tokens out of the daily counts and the balances of compactions.

A server once reported counts such as 9223372036854775807. What else was counted in the same column
of that row is not known, so the column begins again, and the call counts as not reported.
"""

from decimal import Decimal
from typing import Any

from django.db import migrations
from django.db.models import F, Q

# No day has so many tokens, and none costs so much.
MOST = 10**15
COLUMNS = {
    "DailyCount": ("input", "cached", "written", "output", "saved_tokens", "lost_tokens"),
    "CompactionBalance": ("saved_tokens", "lost_tokens"),
}
MONEY = {
    "DailyCount": (("cost", "unpriced"), ("saved", "saved_unpriced"), ("lost", "lost_unpriced")),
    "CompactionBalance": (("saved", "saved_unpriced"), ("lost", "lost_unpriced")),
}


def repair(apps: Any, _editor: Any) -> None:
    """Empty the columns that hold an impossible number."""
    for name, columns in COLUMNS.items():
        rows = apps.get_model("chats", name).objects
        broken = Q()
        for column in columns:
            broken |= Q(**{f"{column}__gt": MOST}) | Q(**{f"{column}__lt": -MOST})
        for pk in list(rows.filter(broken).values_list("pk", flat=True)):
            row = rows.filter(pk=pk)
            for money, unknown in MONEY[name]:
                row.filter(Q(**{f"{money}__gt": Decimal(10**6)})).update(
                    **{money: 0, unknown: F(unknown) + 1}
                )
            for column in columns:
                row.filter(
                    Q(**{f"{column}__gt": MOST}) | Q(**{f"{column}__lt": -MOST})
                ).update(**{column: 0})
            row.update(unreported=F("unreported") + 1)


class Migration(migrations.Migration):
    dependencies = [("chats", "0047_skipped_rows")]
    operations = [migrations.RunPython(repair, migrations.RunPython.noop)]
