"""Files for outsiders, who verify the ledger without this product: keys, log, proofs of chains."""

from collections.abc import Iterator

from chats.checkpoints import checks, keys, signing
from chats.ground.refusals import Refusal
from contextpolicy.audit import notes
from contextpolicy.audit.tree import inclusion, leaf_hash
from contextpolicy.models import LedgerKey, LedgerLeaf, LedgerOrigin


class NoProof(Refusal):
    """No checkpoint was signed of this chain yet, or there is no such chain."""

    code = "no_proof"
    status = 404
    sentence = (
        "No checkpoint was signed of this chain yet. Chains are called “instance” or “chat:” and "
        "the chat's id; a new one is in the next checkpoint, within an hour."
    )


def log_lines(origin: LedgerOrigin) -> Iterator[str]:
    """Yield each entry of a log in base64, one a line."""
    for entry in checks.entries_of(origin):
        yield f"{notes.b64(entry)}\n"


def proof_of(scope: str) -> tuple[str, str]:
    """Return the proof file of a chain, and the entry that it proves. Raises `NoProof`."""
    head = signing.newest()
    leaf = None
    if head is not None:
        leaves = LedgerLeaf.objects.filter(origin=head.origin, scope=scope, place__lt=head.size)
        leaf = leaves.order_by("-count").first()
    if head is None or leaf is None or not scope:
        raise NoProof
    hashes: list[bytes] = []
    for entry in checks.entries_of(head.origin):
        if len(hashes) == head.size:
            break
        hashes.append(leaf_hash(entry))
    found = inclusion(hashes, leaf.place)
    entry = notes.entry(leaf.scope, leaf.count, leaf.last_hash)
    return notes.proof(head.note, index=leaf.place, hashes=found), entry.decode()


def public_keys() -> list[tuple[LedgerKey, str, str]]:
    """Return every key that ever signed, newest first: row, as a verifier key, as PEM."""
    head = signing.newest()
    if head is None:
        return []
    return [
        (
            key,
            notes.verifier_key(head.origin.name, keys.public_of(key)),
            notes.pem(keys.public_of(key)),
        )
        for key in LedgerKey.objects.order_by("-pk")
    ]
