"""Embedding models with fake servers."""

from datetime import datetime

from django.db.models.functions import Now

from chats.compaction import embedding
from chats.models import VectorSpace
from tests.fakes.embedding import FakeEmbedder

Embedders = dict[str, FakeEmbedder]


def embed_everything(now: datetime) -> None:
    """Run the pending tasks until none is left."""
    for _ in range(20):
        VectorSpace.objects.filter(due_at__isnull=False).update(due_at=Now())
        embedding.continue_embedding_pass(now=now)
