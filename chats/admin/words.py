"""Values of records as words, tables and indented JSON."""

import json
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString


def as_table(heads: list[str], rows: list[list[Any]]) -> SafeString:
    """Rows below their heads; a sentence when there are none."""
    return render_to_string("admin/chats/_table.html", {"heads": heads, "rows": rows})


def as_json(value: object) -> SafeString:
    """Indented JSON with sorted keys."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return render_to_string("admin/contextpolicy/_json.html", {"text": text})
