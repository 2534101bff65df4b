"""Verifies an export of a Palimpsest ledger without the product: Python 3.9 or newer, nothing else.

    python3 verify_ledger.py --key KEY EXPORT.jsonl [--log LOG] [--proof PROOF] [--checkpoint NOTE]

KEY is the verifier key as the product shows it (name+id+base64), or a file that holds it: take it
from somewhere that you trust. EXPORT is the ledger as JSON Lines. LOG is the list of the log's
entries; with it every chain is checked against the signed checkpoint. PROOF does the same for one
chain. NOTE is a checkpoint that you kept: an older one shows that nothing was written anew since.
Ends with 0 when everything holds.
"""

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)
GENESIS = "0" * 64
Point = tuple[int, int, int, int]


def recover_x(y: int, sign: int) -> int | None:
    """Compute x of a point of the curve from y; None for no point (RFC 8032, 5.1.3)."""
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if x2 == 0:
        return None if sign else 0
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * ROOT_OF_MINUS_ONE % P
    if (x * x - x2) % P:
        return None
    return P - x if (x & 1) != sign else x


def decoded(data: bytes) -> Point | None:
    """Read a point of the curve; None for no point."""
    if len(data) != 32:
        return None
    number = int.from_bytes(data, "little")
    y = number & ((1 << 255) - 1)
    x = recover_x(y, number >> 255)
    return None if x is None else (x, y, 1, x * y % P)


def add(a: Point, b: Point) -> Point:
    """Add two points."""
    left = (a[1] - a[0]) * (b[1] - b[0]) % P
    right = (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = right - left, d - c, d + c, right + left
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def times(factor: int, point: Point) -> Point:
    """Multiply a point."""
    found: Point = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            found = add(found, point)
        point = add(point, point)
        factor >>= 1
    return found


_Y = 4 * pow(5, P - 2, P) % P
_X = recover_x(_Y, 0) or 0
BASE: Point = (_X, _Y, 1, _X * _Y % P)


def signature_holds(public: bytes, message: bytes, signature: bytes) -> bool:
    """Verify an Ed25519 signature."""
    key, commitment = decoded(public), decoded(signature[:32])
    factor = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or len(signature) != 64 or factor >= L:
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    left = times(factor, BASE)
    right = add(commitment, times(int.from_bytes(digest, "little") % L, key))
    same_x = (left[0] * right[2] - right[0] * left[2]) % P == 0
    return same_x and (left[1] * right[2] - right[1] * left[2]) % P == 0


def leaf_hash(entry: bytes) -> bytes:
    """Hash an entry of the log (RFC 6962)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash two subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_of(leaves: "list[bytes]") -> bytes:
    """Compute the root of a tree."""
    roots: list[bytes] = []
    for place, leaf in enumerate(leaves):
        roots.append(leaf)
        while place % 2:
            right = roots.pop()
            roots.append(node_hash(roots.pop(), right))
            place //= 2  # the number of trees of this height
    if not roots:
        return hashlib.sha256(b"").digest()
    found = roots.pop()
    while roots:
        found = node_hash(roots.pop(), found)
    return found


def root_by_proof(entry: bytes, index: int, size: int, hashes: "list[bytes]") -> bytes | None:
    """Compute the root to which a proof leads; None for a proof of the wrong length."""
    found, last = leaf_hash(entry), size - 1
    for other in hashes:
        if last == 0:
            return None
        if index % 2 or index == last:
            found = node_hash(other, found)
            while index % 2 == 0 and index:
                index, last = index // 2, last // 2
        else:
            found = node_hash(found, other)
        index, last = index // 2, last // 2
    return found if last == 0 else None


class Key:
    """A verifier key: a name, four bytes of id, the public key."""

    def __init__(self, text: str) -> None:
        # The key itself may have a plus sign; a name has none.
        self.name, self.id, encoded = text.strip().split("+", 2)
        self.public = base64.b64decode(encoded)[1:]
        expected = hashlib.sha256(f"{self.name}\n".encode() + b"\x01" + self.public).hexdigest()[:8]
        if self.id != expected:
            raise ValueError("the id of the key is not that of its bytes")


class Checkpoint:
    """A signed head of the log."""

    def __init__(self, note: str) -> None:
        self.body, _, rest = note.rpartition("\n\n")
        self.origin, size, root = self.body.split("\n")
        self.size, self.root = int(size), base64.b64decode(root)
        self.lines = [line.split(" ") for line in rest.split("\n") if line.startswith("— ")]

    def fault(self, key: Key) -> str:
        """Say why a key did not sign it; empty when it did."""
        for _, name, text in self.lines:
            blob = base64.b64decode(text)
            if name == key.name and blob[:4].hex() == key.id:
                body = f"{self.body}\n".encode()
                is_sound = signature_holds(key.public, body, blob[4:])
                return "" if is_sound else "its signature does not fit"
        return "it is signed by another key than the one given"


class Verifier:
    """Collects what does not hold."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.faults: list[str] = []
        self.said: list[str] = []
        # By chain and number: the hash of each row; and each chain's last number.
        self.hashes: dict[tuple[str, int], str] = {}
        self.ends: dict[str, int] = {}
        self.newest: Checkpoint | None = None

    def export(self, lines: Iterable[bytes]) -> None:
        """Follow every chain of an export, and read its last line."""
        digest, rows, foot = hashlib.sha256(), 0, None
        previous: dict[str, str] = {}
        for line in lines:
            row: dict[str, Any] = json.loads(line)
            if "export" in row and "scope" not in row:
                foot = row
                break
            digest.update(line)
            rows += 1
            scope, seq = row["scope"], row["seq"]
            if seq != self.ends.get(scope, 0) + 1:
                self.faults.append(f"{scope}: row {self.ends.get(scope, 0) + 1} is missing")
            text = previous.get(scope, GENESIS).encode() + line.rstrip(b"\n")
            previous[scope] = hashlib.sha256(text).hexdigest()
            self.hashes[scope, seq], self.ends[scope] = previous[scope], seq
        if foot is None:
            self.faults.append("the export has no last line: it was cut off")
            return
        if (foot["rows"], foot["sha256"]) != (rows, digest.hexdigest()):
            self.faults.append("the last line of the export does not fit what stands before it")
        self.said.append(f"{rows} rows in {len(self.ends)} chains")
        if foot["checkpoint"]:
            self.newest = Checkpoint(foot["checkpoint"])
            self.signature(self.newest, "the checkpoint of the export")

    def signature(self, head: Checkpoint, name: str) -> None:
        """Check a signature."""
        if fault := head.fault(self.key):
            self.faults.append(f"{name}: {fault}")
        else:
            self.said.append(f"{name}: signed, {head.size} entries of {head.origin}")

    def entry(self, text: str) -> None:
        """Check an entry of the log against the chains of the export."""
        kind, *rest = text.rstrip("\n").split("\n")
        if kind == "chain" and rest[0] in self.ends:
            scope, count, last = rest
            if self.hashes.get((scope, int(count))) != last:
                self.faults.append(f"{scope}: row {count} is not the one that was signed")
        elif kind == "chain":
            self.faults.append(f"{rest[0]}: the chain is gone from the export")

    def log(self, lines: Iterable[str], anchors: "list[Checkpoint]") -> None:
        """Check the entries of the log against checkpoints and chains."""
        entries = [base64.b64decode(line) for line in lines]
        leaves = [leaf_hash(entry) for entry in entries]
        for head in anchors:
            if root_of(leaves[: head.size]) != head.root or len(leaves) < head.size:
                self.faults.append(f"the log is not the one of the checkpoint of {head.size}")
        for entry in entries:
            self.entry(entry.decode())
        self.said.append(f"{len(entries)} entries of the log")

    def proof(self, text: str) -> None:
        """Check the proof of one chain: its last signed row stands in the export."""
        top, _, note = text.partition("\n\n")
        head = Checkpoint(note)
        self.signature(head, "the checkpoint of the proof")
        lines = [line for line in top.split("\n")[1:] if not line.startswith("extra ")]
        index = int(lines[0].split(" ")[1])
        hashes = [base64.b64decode(line) for line in lines[1:]]
        for (scope, seq), last in self.hashes.items():
            entry = f"chain\n{scope}\n{seq}\n{last}\n".encode()
            if root_by_proof(entry, index, head.size, hashes) == head.root:
                self.said.append(f"{scope}: rows 1 to {seq} are those that were signed")
                return
        self.faults.append("no row of the export is the one that the proof is about")


def main(arguments: "list[str] | None" = None) -> int:
    """Verify, say what was found, and return 0 when everything holds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("export", type=Path)
    parser.add_argument("--key", required=True)
    for name in ("--log", "--proof", "--checkpoint"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    text = Path(given.key).read_text("utf-8") if Path(given.key).is_file() else given.key
    verifier = Verifier(Key(text))
    with given.export.open("rb") as lines:
        verifier.export(lines)
    anchors = [verifier.newest] if verifier.newest else []
    if given.checkpoint:
        anchors.append(Checkpoint(given.checkpoint.read_text("utf-8")))
        verifier.signature(anchors[-1], "the checkpoint that was kept")
        if not given.log:
            verifier.faults.append("a checkpoint that was kept is compared with --log: name it")
    if given.log:
        with given.log.open(encoding="utf-8") as entries:
            verifier.log(entries, anchors)
    if given.proof:
        verifier.proof(given.proof.read_text("utf-8"))
    for line in [*verifier.said, *(f"BROKEN: {fault}" for fault in verifier.faults)]:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write("Something does not hold.\n" if verifier.faults else "Everything holds.\n")
    return 1 if verifier.faults else 0


if __name__ == "__main__":
    sys.exit(main())
