"""Creates embeddings: the protocol of all embedders, and the embedder for servers.

Responses are validated: one vector per text, all of the same length, with finite numbers and not
all zero. Anything else is an error.
"""

import base64
import math
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from chats.providers.base import ProviderError, Timeouts
from chats.providers.embeddings import request_embeddings
from chats.providers.registry import ProviderAccountValue

Vector = Sequence[float]
MOST_DIMENSIONS = 8_192
# Vectors are stored and compared in single precision. Norms outside this range would overflow.
SHORTEST, LONGEST = 1e-18, 1e18


class Embedder(Protocol):
    """Creates embeddings of texts."""

    async def vectors(self, texts: Sequence[str], *, timeouts: Timeouts) -> list[Vector]:
        """Return a vector for each text, in order. Raises ProviderError."""
        ...


class ServerEmbedder:
    """A model behind `/v1/embeddings`."""

    def __init__(self, account: ProviderAccountValue, *, model: str) -> None:
        self.account = account
        self.model = model

    async def vectors(self, texts: Sequence[str], *, timeouts: Timeouts) -> list[Vector]:
        """Return a vector for each text, in order. Raises ProviderError."""
        body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        found = await request_embeddings(self.account, body, timeouts=timeouts)
        return check_vectors([decode_embedding(entry) for entry in sort_embeddings(found.data)])


def build_embedder(account: ProviderAccountValue, *, model: str) -> Embedder:
    return ServerEmbedder(account, model=model)


def sort_embeddings(data: Sequence[Any]) -> list[Any]:
    """Return the entries of a response sorted by `index`.

    The order stays unless the indexes are the numbers from 0, each once.
    """
    places = [entry.get("index") for entry in data]
    if sorted(place for place in places if type(place) is int) != list(range(len(data))):
        return list(data)
    return [entry for _, entry in sorted(zip(places, data, strict=True), key=lambda pair: pair[0])]


def decode_embedding(entry: Any) -> list[float]:
    """Return the numbers of an embedding, decoding base64 if needed. Raises ProviderError."""
    said = entry["embedding"]
    try:
        if isinstance(said, str):
            raw = base64.b64decode(said, validate=True)
            said = struct.unpack(f"<{len(raw) // 4}f", raw)
        return [float(number) for number in said]
    except (ValueError, TypeError, OverflowError, struct.error):
        raise ProviderError("provider_protocol") from None


def check_vectors(vectors: list[list[float]]) -> list[Vector]:
    """Return the vectors if they can be compared. Raises ProviderError."""
    lengths = {len(vector) for vector in vectors}
    is_sound = len(lengths) == 1 and 0 < min(lengths) <= MOST_DIMENSIONS
    for vector in vectors if is_sound else ():
        size = math.sqrt(sum(number * number for number in vector))
        is_sound = is_sound and SHORTEST < size < LONGEST
    if not is_sound:
        raise ProviderError("provider_protocol")
    return list(vectors)
