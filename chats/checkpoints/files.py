"""Downloads for verifying the ledger without this product: keys, log, chain proofs."""

from collections.abc import Iterator

from django.utils.translation import gettext_noop

from chats.checkpoints import checks, keys, signing
from chats.ground.refusals import Refusal
from contextpolicy.audit import notes
from contextpolicy.audit.tree import compute_inclusion_path, hash_leaf
from contextpolicy.models import LedgerKey, LedgerLeaf, LedgerOrigin


class NoProof(Refusal):
    """No signed checkpoint covers the audit log yet, or the audit log does not exist."""

    code = "no_proof"
    status = 404
    sentence = gettext_noop(
        "No signed checkpoint covers this audit log yet, or no audit log has this name. A new "
        "audit log is covered within an hour. Enter “instance”, or “chat:” followed by the ID of "
        "a chat."
    )


def list_log_lines(origin: LedgerOrigin) -> Iterator[str]:
    """Yield each entry of a log in base64, one per line."""
    for entry in checks.iter_log_entries(origin):
        yield f"{notes.encode_base64(entry)}\n"


def build_chain_proof(scope: str) -> tuple[str, str]:
    """Return the proof file of a chain and the entry it proves. Raises `NoProof`."""
    head = signing.find_newest_checkpoint()
    leaf = None
    if head is not None:
        leaves = LedgerLeaf.objects.filter(origin=head.origin, scope=scope, place__lt=head.size)
        leaf = leaves.order_by("-count").first()
    if head is None or leaf is None or not scope:
        raise NoProof
    hashes: list[bytes] = []
    for entry in checks.iter_log_entries(head.origin):
        if len(hashes) == head.size:
            break
        hashes.append(hash_leaf(entry))
    found = compute_inclusion_path(hashes, leaf.place)
    entry = notes.encode_chain_entry(leaf.scope, leaf.count, leaf.last_hash)
    return notes.format_inclusion_proof(head.note, index=leaf.place, hashes=found), entry.decode()


def list_public_keys() -> list[tuple[LedgerKey, str, str]]:
    """Return every signing key, newest first: row, verifier key, PEM.

    Empty before the first checkpoint.
    """
    head = signing.find_newest_checkpoint()
    if head is None:
        return []
    return [
        (
            key,
            notes.format_verifier_key(head.origin.name, keys.decode_public_key(key)),
            notes.format_pem_key(keys.decode_public_key(key)),
        )
        for key in LedgerKey.objects.order_by("-pk")
    ]
