"""Merkle trees as in RFC 6962, section 2.1: append-only roots, and inclusion proofs."""

import hashlib
from collections.abc import Iterable, Sequence

Hash = bytes
EMPTY = hashlib.sha256(b"").digest()


def hash_leaf(entry: bytes) -> Hash:
    return hashlib.sha256(b"\x00" + entry).digest()


def hash_node(left: Hash, right: Hash) -> Hash:
    return hashlib.sha256(b"\x01" + left + right).digest()


class Frontier:
    """The roots of a tree's complete subtrees, largest first, which suffice to append leaves."""

    def __init__(self, size: int = 0, roots: Iterable[Hash] = ()) -> None:
        self.size = size
        self.roots = list(roots)

    def append(self, leaf: Hash) -> None:
        self.roots.append(leaf)
        size = self.size
        while size % 2:
            right = self.roots.pop()
            self.roots.append(hash_node(self.roots.pop(), right))
            size //= 2
        self.size += 1

    def root(self) -> Hash:
        if not self.roots:
            return EMPTY
        *others, found = self.roots
        for left in reversed(others):
            found = hash_node(left, found)
        return found


def compute_tree_root(leaves: Iterable[Hash]) -> Hash:
    """Compute the root of a tree from the hashes of its entries."""
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier.root()


def compute_inclusion_path(leaves: Sequence[Hash], index: int) -> list[Hash]:
    """Return the hashes that prove the entry at `index`, from the leaf up."""
    if len(leaves) == 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    if index < half:
        return [*compute_inclusion_path(leaves[:half], index), compute_tree_root(leaves[half:])]
    return [*compute_inclusion_path(leaves[half:], index - half), compute_tree_root(leaves[:half])]
