"""The words of the administration for codes; values of records as tables and indented JSON."""

import json
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

# By whom or what a summary was written, by its rung (see `engine.ladder`).
RUNGS = {
    "": "",
    "model": "By the model",
    "model_again": "By the model, told what was wrong",
    "smaller_source": "By the model, of fewer messages",
    "extractive": "Sentences picked, without a model",
}


def as_table(heads: list[str], rows: list[list[Any]]) -> SafeString:
    """Write rows below their heads; a sentence when there are none."""
    return render_to_string("admin/chats/_table.html", {"heads": heads, "rows": rows})


def as_json(value: object) -> SafeString:
    """Write indented JSON with sorted keys."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return render_to_string("admin/contextpolicy/_json.html", {"text": text})
