"""Where saved preferences are stored and sent."""

import json

from django.apps import apps
from django.db.models import CharField, JSONField, TextField

from chats.models import Turn


def get_sent_tail(turn: Turn) -> str:
    """Return the tail and the question of a turn's last prompt."""
    receipt = turn.receipts.order_by("-created_at").first()
    assert receipt is not None
    texts = apps.get_model("chats", "PromptText")
    digests = [part[5] for part in receipt.segments if part[0] == "tail"]
    return "\n\n".join(texts.objects.get(pk=digest).text for digest in digests)


def list_tables_with(word: str) -> set[str]:
    """Return every table that contains the word."""
    found = set()
    for model in apps.get_models():
        fields = [f for f in model._meta.fields if isinstance(f, TextField | CharField | JSONField)]
        for row in model._base_manager.all():
            values = (getattr(row, field.attname) for field in fields)
            texts = (value if isinstance(value, str) else json.dumps(value) for value in values)
            if any(word in text for text in texts):
                found.add(model.__name__)
    return found
