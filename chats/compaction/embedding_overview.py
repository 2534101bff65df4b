"""The embedding models of an instance, their progress, and their faults."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils.translation import gettext, gettext_noop

from chats.compaction.embedding_spaces import NOT_INSTALLED, WRONG, NotInstalled
from chats.memory.search import nearest, vectors
from chats.models import (
    ProviderAccount,
    VectorSpace,
)
from contextpolicy.models import ModelSpec


@dataclass(frozen=True, slots=True)
class SpaceView:
    """An embedding index on the setup page: model, state, progress and error."""

    space: VectorSpace
    progress: vectors.Progress
    fault: str


@dataclass(frozen=True, slots=True)
class Overview:
    """The state of semantic search: available models, the chosen one, and the progress."""

    models: Sequence[ModelSpec]
    spaces: Sequence[SpaceView]
    is_installed: bool

    @property
    def not_installed(self) -> str:
        """Instructions for installing semantic search, in the reader's language."""
        return gettext(NotInstalled.sentence)

    @property
    def chosen(self) -> str:
        """The slug of the current or future embedding model; empty if none is chosen."""
        newest = self.spaces[-1].space.model if self.spaces else None
        return newest.slug if newest else ""


# Messages to operators about an index whose model could not be called.
FAULTS = {
    NOT_INSTALLED: NotInstalled.sentence,
    WRONG: gettext_noop(
        "The embedding model now returns vectors of a different length. Select “Rebuild index”."
    ),
    "provider_unavailable": gettext_noop(
        "The embedding model’s server could not be reached. Check that it is running."
    ),
    "provider_timeout": gettext_noop(
        "The embedding model’s server did not answer in time. Check whether it is overloaded."
    ),
    "provider_auth": gettext_noop(
        "The embedding model’s server rejected the API key. Check the key."
    ),
    "provider_protocol": gettext_noop(
        "The embedding model’s server sent a response without a valid vector. Check that the "
        "model supports embeddings."
    ),
    "provider_rejected": gettext_noop(
        "The embedding model’s server rejects every text. Check the model name."
    ),
    "provider_rate_limited": gettext_noop(
        "The embedding model’s server is receiving too many requests."
    ),
}


OTHER_FAULT = gettext_noop("The embedding model’s server returned an error. Check its log.")


def build_embedding_overview() -> Overview:
    """Return the state of semantic search for operators, in the reader's language."""
    spaces = [
        SpaceView(
            space,
            vectors.measure_space_progress(space),
            gettext(FAULTS.get(space.fault, OTHER_FAULT)) if space.fault else "",
        )
        for space in vectors.list_active_spaces()
    ]
    return Overview(list(list_enabled_embedding_models()), spaces, nearest.is_numpy_installed())


def list_enabled_embedding_models() -> QuerySet[ModelSpec]:
    # Anthropic's API has no embeddings.
    accounts = ProviderAccount.objects.filter(enabled=True, kind="openai").values("slug")
    return ModelSpec.objects.filter(embeds=True, provider__in=accounts)
