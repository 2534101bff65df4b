"""Embedding models and their clients, and whether they can be used here."""

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.memory.search import nearest
from chats.models import (
    VectorSpace,
)
from chats.prompt import model_choice
from chats.providers import embedders
from chats.providers.embedders import Embedder

NOT_INSTALLED = "not_installed"


WRONG = "other_dimensions"


class Unreachable(Exception):
    """The model of an embedding index is unavailable. `code` gives the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class NotInstalled(Refusal):
    """The optional package for vector search is not installed."""

    code = "semantic_not_installed"
    status = 409
    sentence = gettext_noop("Semantic search is not installed. Run “make semantic”, then restart.")


def get_space_embedder(space: VectorSpace) -> Embedder:
    """Return the embedding client of an index. Raises `Unreachable`."""
    if not nearest.is_numpy_installed():
        raise Unreachable(NOT_INSTALLED)
    if space.model is None:
        raise Unreachable("model_unavailable")
    try:
        account = model_choice.get_model_account(space.model, to_embed=True)
    except Refusal as refusal:
        raise Unreachable(refusal.code) from refusal
    return embedders.build_embedder(account, model=space.model.name)
