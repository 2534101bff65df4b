"""Verifies an export of a Palimpsest ledger without the product: Python 3.9 or newer, nothing else.

    python3 verify_ledger.py --key KEY EXPORT.jsonl [--log LOG] [--proof PROOF] [--checkpoint NOTE]

KEY is the verifier key as the product shows it (name+id+base64), or a file that holds it: take it
from somewhere that you trust. EXPORT is the ledger as JSON Lines. LOG is the list of the log's
entries; with it every chain is compared with the signed checkpoint. PROOF does the same for one
chain. NOTE is a checkpoint that you kept: an older one shows that nothing was written anew since.

Says what was compared with what. Ends with 0 when every chain of the export was compared with
something signed and all of it holds, with 1 when something does not hold, and with 2 when nothing
is broken but not everything is proven, or a file cannot be read.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
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


def root_of(leaves: list[bytes]) -> bytes:
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


def root_by_proof(entry: bytes, index: int, size: int, hashes: list[bytes]) -> bytes | None:
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


class Unreadable(Exception):
    """A file is not what it should be; the text says which and why."""


def base64_of(text: str) -> bytes:
    """Decode base64 and nothing else. Raises ValueError."""
    return base64.b64decode(text.encode("ascii"), validate=True)


def number_of(text: str) -> int:
    """Read a decimal number without a sign. Raises ValueError."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError("it is no number")
    return int(text)


def printable(text: str) -> str:
    """Return a text of a file as it may be printed: short, without control characters."""
    shown = "".join(each if each.isprintable() else "?" for each in text[:100])
    return shown if len(text) <= 100 else f"{shown}…"


class Key:
    """A verifier key: a name, four bytes of id, the public key. Raises ValueError."""

    def __init__(self, text: str) -> None:
        # The key itself may have a plus sign; a name has none.
        self.name, self.id, encoded = text.strip().split("+", 2)
        whole = base64_of(encoded)
        self.public = whole[1:]
        expected = hashlib.sha256(f"{self.name}\n".encode() + b"\x01" + self.public).hexdigest()[:8]
        if self.id != expected:
            raise ValueError("the id of the key is not that of its bytes")
        if whole[:1] != b"\x01" or len(self.public) != 32:
            raise ValueError("it is no Ed25519 key")


class Checkpoint:
    """A signed head of the log. Raises ValueError for a text that is none."""

    def __init__(self, note: str) -> None:
        self.body, gap, rest = note.rpartition("\n\n")
        lines = self.body.split("\n")
        if not gap or len(lines) != 3:
            raise ValueError("a checkpoint has three lines, an empty one, and signatures")
        self.origin, self.size = lines[0], number_of(lines[1])
        self.root = base64_of(lines[2])
        self.lines = [line.split(" ") for line in rest.split("\n") if line.startswith("— ")]

    def fault(self, key: Key) -> str:
        """Say why a key did not sign it; empty when it did."""
        for line in self.lines:
            try:
                _, name, text = line
                blob = base64_of(text)
            except ValueError:
                # Signatures of other kinds are none of ours.
                continue
            if name == key.name and blob[:4].hex() == key.id:
                body = f"{self.body}\n".encode()
                is_sound = signature_holds(key.public, body, blob[4:])
                return "" if is_sound else "its signature does not fit"
        return "it is signed by another key than the one given"


class Entry:
    """An entry of the log: what kind it is, and for a chain its name, rows and last hash."""

    def __init__(self, line: str) -> None:
        self.bytes = base64_of(line)
        kind, *rest = self.bytes.decode("utf-8").rstrip("\n").split("\n")
        self.is_chain = kind == "chain"
        self.is_known = self.is_chain or kind == "after"
        self.scope, self.count, self.last = "", 0, ""
        if self.is_chain:
            self.scope, count, self.last = rest
            self.count = number_of(count)


class Verifier:
    """Collects what was compared, what does not hold, and what nothing signed shows."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.said: list[str] = []
        self.faults: list[str] = []
        self.unproven: list[str] = []
        # By chain and number: the hash of each row; and each chain's last number.
        self.hashes: dict[tuple[str, int], str] = {}
        self.ends: dict[str, int] = {}
        # By chain: the last row that something signed shows.
        self.proven: dict[str, int] = {}
        self.gaps: dict[str, int] = {}
        self.search = ""
        self.newest: Checkpoint | None = None
        # The checkpoints whose signature holds.
        self.anchors: list[tuple[str, Checkpoint]] = []

    def export(self, lines: Iterable[bytes]) -> None:
        """Follow every chain of an export, and read its last line."""
        digest, rows, foot = hashlib.sha256(), 0, None
        previous: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            if foot is not None:
                if line.strip():
                    self.faults.append("lines stand behind the last line of the export")
                    break
                continue
            row = parsed(line, number)
            if "export" in row and "scope" not in row:
                foot = row
                continue
            digest.update(line)
            rows += 1
            scope, seq = place_of(row, number)
            if seq != self.ends.get(scope, 0) + 1:
                self.gaps.setdefault(scope, self.ends.get(scope, 0) + 1)
            text = previous.get(scope, GENESIS).encode() + line.rstrip(b"\n")
            previous[scope] = hashlib.sha256(text).hexdigest()
            self.hashes[scope, seq], self.ends[scope] = previous[scope], seq
        self.said.append(f"the export has {rows} rows in {len(self.ends)} chains")
        if foot is None:
            self.faults.append("the export has no last line: it was cut off")
        else:
            self.foot(foot, rows=rows, digest=digest.hexdigest())
        self.judge_gaps()

    def foot(self, foot: dict[str, Any], *, rows: int, digest: str) -> None:
        """Compare the last line of an export with what stands before it."""
        if (foot.get("rows"), foot.get("sha256")) != (rows, digest):
            self.faults.append("the last line of the export does not fit what stands before it")
        else:
            self.said.append("its last line counts these rows and has their hash")
        search, note = foot.get("search", ""), foot.get("checkpoint", "")
        if not isinstance(search, str) or not isinstance(note, str):
            raise Unreadable("the last line of the export is none that the product writes")
        self.search = search
        if note:
            self.newest = checkpoint_in(note, "the checkpoint of the export")
            self.signature(self.newest, "the checkpoint of the export")

    def judge_gaps(self) -> None:
        """Say where rows are missing; an export of some rows leaves out others."""
        for scope, first in self.gaps.items():
            if self.search and self.only() is None:
                self.unproven.append(
                    f"{printable(scope)}: the search of the export leaves rows out, so the chain "
                    "cannot be followed. Export whole chains"
                )
            else:
                self.faults.append(f"{printable(scope)}: row {first} is missing")
        only = self.only()
        if only is not None:
            others = [scope for scope in self.ends if scope != only]
            if others:
                self.faults.append(
                    f"the export says that it is of {printable(only)}, and has rows of "
                    f"{len(others)} other chains"
                )
            self.said.append(f"it is an export of {printable(only)} alone, not of the whole ledger")
        elif self.search:
            self.said.append(f"it is an export of the search “{printable(self.search)}”")

    def only(self) -> str | None:
        """Return the chain that the export is of; None for a whole ledger, or another search."""
        return self.search if ONE_CHAIN.fullmatch(self.search) else None

    def signature(self, head: Checkpoint, name: str) -> None:
        """Check a signature."""
        if fault := head.fault(self.key):
            self.faults.append(f"{name}: {fault}")
        else:
            self.anchors.append((name, head))
            origin = printable(head.origin)
            self.said.append(f"{name}: signed by the key, {head.size} entries of {origin}")

    def log(self, entries: list[Entry]) -> None:
        """Compare the entries of the log with the signed checkpoints, and the chains with these."""
        leaves, signed, differs = [leaf_hash(entry.bytes) for entry in entries], 0, False
        for name, head in self.anchors:
            if self.newest is not None and head.origin != self.newest.origin:
                self.unproven.append(f"{name} is of another origin than the export and its log")
            elif len(leaves) < head.size:
                self.unproven.append(
                    f"the log has {len(leaves)} entries and {name} counts {head.size}: take the "
                    "log after it"
                )
            elif root_of(leaves[: head.size]) != head.root:
                differs = True
                self.faults.append(f"the log is not the one of {name}, of {head.size} entries")
            else:
                signed = max(signed, head.size)
                self.said.append(f"the log gives the root of {name}, of {head.size} entries")
        if not signed and not differs:
            self.unproven.append("the log was compared with no signed checkpoint")
        if signed and len(entries) > signed:
            self.said.append(f"{len(entries) - signed} entries of the log are newer: not compared")
        # Without a signed checkpoint the entries show contradictions, and prove nothing.
        self.chains(entries[:signed] if signed else entries, is_signed=bool(signed))

    def chains(self, entries: list[Entry], *, is_signed: bool) -> None:
        """Compare each chain with its entries."""
        if unknown := sum(not entry.is_known for entry in entries):
            self.unproven.append(f"{unknown} entries of the log are of a kind unknown here")
        absent: set[str] = set()
        own = self.newest.size if self.newest is not None else 0
        for index, entry in enumerate(entries):
            if not entry.is_chain:
                continue
            if entry.scope not in self.ends:
                absent.add(entry.scope)
            elif entry.scope not in self.gaps:
                self.chain(entry, is_signed=is_signed, is_own=index < own)
        self.absent(sorted(absent))
        if is_signed:
            self.said.append(
                f"{len(self.proven)} of {len(self.ends)} chains are as the signed entries say"
            )

    def chain(self, entry: Entry, *, is_signed: bool, is_own: bool) -> None:
        """Compare a chain with one of its entries; `is_own`: of the export's own checkpoint."""
        scope, end = entry.scope, self.ends[entry.scope]
        if entry.count > end and not is_own:
            self.unproven.append(
                f"{printable(scope)}: {entry.count} rows are in the log and {end} in the export, "
                "which is older or was cut"
            )
        elif self.hashes.get((scope, entry.count)) != entry.last:
            kind = "signed" if is_signed else "in the log"
            self.faults.append(
                f"{printable(scope)}: row {entry.count} is not the one that was {kind}"
            )
        elif is_signed:
            self.proven[scope] = max(self.proven.get(scope, 0), entry.count)

    def absent(self, scopes: list[str]) -> None:
        """Say which chains of the log are not in the export."""
        only = self.only()
        if only is not None:
            self.said.append(
                f"other chains of the log, which are not in it: {len(set(scopes) - {only})}"
            )
        elif self.search and scopes:
            self.unproven.append(
                f"the export is of a search, and chains of the log are not in it: {len(scopes)}"
            )
        else:
            for scope in scopes:
                self.faults.append(f"{printable(scope)}: the chain is gone from the export")

    def proof(self, text: str) -> None:
        """Check the proof of one chain: its last signed row stands in the export."""
        top, _, note = text.partition("\n\n")
        head = checkpoint_in(note, "the checkpoint of the proof")
        try:
            form, *lines = [each for each in top.split("\n") if not each.startswith("extra ")]
            word, _, index_text = lines[0].partition(" ")
            index, hashes = number_of(index_text), [base64_of(line) for line in lines[1:]]
        except (ValueError, IndexError):
            raise Unreadable("the proof is none that can be read") from None
        if form != PROOF_FORM or word != "index":
            raise Unreadable("the proof is none that can be read")
        known = len(self.anchors)
        self.signature(head, "the checkpoint of the proof")
        for (scope, seq), last in self.hashes.items():
            entry = f"chain\n{scope}\n{seq}\n{last}\n".encode("utf-8", "surrogatepass")
            if root_by_proof(entry, index, head.size, hashes) == head.root:
                self.said.append(
                    f"{printable(scope)}: rows 1 to {seq} are those that were signed, by the proof"
                )
                if len(self.anchors) > known and scope not in self.gaps:
                    self.proven[scope] = max(self.proven.get(scope, 0), seq)
                return
        self.faults.append("no row of the export is the one that the proof is about")

    def conclude(self) -> None:
        """Say which chains and rows nothing signed shows."""
        bare = sorted(set(self.ends) - set(self.proven))
        for scope in bare[:MOST_NAMED]:
            self.unproven.append(f"{printable(scope)}: compared with nothing that was signed")
        if len(bare) > MOST_NAMED:
            self.unproven.append(f"{len(bare) - MOST_NAMED} more chains: as little")
        if not self.proven:
            self.unproven.append("nothing of the export was compared with anything signed")

    def newer(self) -> int:
        """Return how many rows of compared chains are newer than what was signed."""
        return sum(self.ends[scope] - last for scope, last in self.proven.items())

    def outcome(self) -> tuple[str, int]:
        """Return the last sentence and the exit code."""
        if self.faults:
            return "Something does not hold.", 1
        if self.unproven:
            return "Nothing is broken, and not everything is proven.", 2
        rows = self.newer()
        later = f" Newer than what was signed, so not proven yet: {rows} rows." if rows else ""
        return f"Everything holds.{later}", 0


# The search of an export that is of one chain.
ONE_CHAIN = re.compile(r"chat:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The first line of a proof, and how many chains are named one by one.
PROOF_FORM = "c2sp.org/tlog-proof@v1"
MOST_NAMED = 20


def parsed(line: bytes, number: int) -> dict[str, Any]:
    """Read a line of the export. Raises `Unreadable`."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise Unreadable(f"line {number} of the export is no JSON object")
    return row


def place_of(row: dict[str, Any], number: int) -> tuple[str, int]:
    """Return the chain and the number of a row. Raises `Unreadable`."""
    scope, seq = row.get("scope"), row.get("seq")
    if not isinstance(scope, str) or not isinstance(seq, int) or isinstance(seq, bool):
        raise Unreadable(f"line {number} of the export is no row of a ledger")
    return scope, seq


def checkpoint_in(note: str, name: str) -> Checkpoint:
    """Read a checkpoint. Raises `Unreadable`."""
    try:
        return Checkpoint(note)
    except ValueError as error:
        raise Unreadable(f"{name} cannot be read: {error}") from None


def text_of(path: Path, name: str) -> str:
    """Read a file. Raises `Unreadable`."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise Unreadable(f"{name} cannot be read: {reason}") from None


def key_in(given: str) -> Key:
    """Read the verifier key, or the file that holds it. Raises `Unreadable`."""
    try:
        is_file = Path(given).is_file()
    except (OSError, ValueError):
        is_file = False
    text = text_of(Path(given), "the key") if is_file else given
    try:
        return Key(text)
    except ValueError as error:
        reason = error if str(error).startswith(("the id", "it is no Ed")) else "name+id+base64"
        raise Unreadable(f"the key is no verifier key: {reason}") from None


def entries_in(path: Path) -> list[Entry]:
    """Read the log. Raises `Unreadable`."""
    found = []
    for number, line in enumerate(text_of(path, "the log").splitlines(), start=1):
        try:
            found.append(Entry(line))
        except ValueError:
            raise Unreadable(f"line {number} of the log is no entry") from None
    return found


def verified(given: argparse.Namespace) -> Verifier:
    """Compare everything that was given. Raises `Unreadable`."""
    verifier = Verifier(key_in(given.key))
    try:
        with given.export.open("rb") as lines:
            verifier.export(lines)
    except OSError as error:
        raise Unreadable(f"the export cannot be read: {error.strerror}") from None
    if given.checkpoint:
        name = "the checkpoint that was kept"
        kept = checkpoint_in(text_of(given.checkpoint, name), name)
        verifier.signature(kept, name)
        if not given.log:
            verifier.unproven.append(f"{name} is compared with --log: name it")
    if given.log:
        verifier.log(entries_in(given.log))
    if given.proof:
        verifier.proof(text_of(given.proof, "the proof"))
    verifier.conclude()
    return verifier


def main(arguments: list[str] | None = None) -> int:
    """Verify, say what was compared and found, and return 0 when everything is proven."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("export", type=Path)
    parser.add_argument("--key", required=True)
    for name in ("--log", "--proof", "--checkpoint"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    try:
        verifier = verified(given)
    except Unreadable as error:
        lines, sentence, code = [], f"Nothing is proven: {error}.", 2
    else:
        sentence, code = verifier.outcome()
        lines = [
            *verifier.said,
            *(f"NOT PROVEN: {reason}" for reason in verifier.unproven),
            *(f"BROKEN: {fault}" for fault in verifier.faults),
        ]
    for line in [*lines, sentence]:
        # Whatever the terminal can show.
        encoding = sys.stdout.encoding or "ascii"
        shown = line.encode(encoding, "backslashreplace").decode(encoding)
        sys.stdout.write(f"{shown}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
