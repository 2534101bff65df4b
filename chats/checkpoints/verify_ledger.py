"""Verifies an export of a Palimpsest ledger without the product: Python 3.9 or newer, nothing else.

    python3 verify_ledger.py --key KEY EXPORT.jsonl [--log LOG] [--proof PROOF] [--checkpoint NOTE]

KEY is the verifier key as the product shows it (name+id+base64), or a file that contains it. Get
it from a source that you trust. EXPORT is the ledger as JSON Lines. LOG is the list of log
entries; with it, every chain is compared with the signed checkpoint. PROOF does the same for one
chain. NOTE is a checkpoint that you saved earlier: it shows that nothing was rewritten since.

Prints what was compared. Exit code 0: every chain of the export matches a signed checkpoint.
1: at least one comparison failed. 2: nothing failed, but some rows are unproven or a file cannot
be read.
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
NOT_SIGNED = "it is not signed by the given key"
LOG_NOT_COMPARED = "the log was not compared with any signed checkpoint"
CHAINS_NOT_COUNTED = "no signed log shows whether chains are missing from the export: add --log"
LINES_AFTER_END = "lines follow the last line of the export"
EXPORT_OLDER = "The export is older or was cut"
FILE_NOT_READ = "{name} cannot be read: {reason}"
Point = tuple[int, int, int, int]


def recover_x(y: int, sign: int) -> int | None:
    """Compute x of a curve point from y; None if there is no such point (RFC 8032, 5.1.3)."""
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


def decode_point(data: bytes) -> Point | None:
    """Decode a curve point; None if it is invalid."""
    if len(data) != 32:
        return None
    number = int.from_bytes(data, "little")
    y = number & ((1 << 255) - 1)
    x = recover_x(y, number >> 255)
    return None if x is None else (x, y, 1, x * y % P)


def add_points(a: Point, b: Point) -> Point:
    left = (a[1] - a[0]) * (b[1] - b[0]) % P
    right = (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = right - left, d - c, d + c, right + left
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def multiply_point(factor: int, point: Point) -> Point:
    found: Point = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            found = add_points(found, point)
        point = add_points(point, point)
        factor >>= 1
    return found


_Y = 4 * pow(5, P - 2, P) % P
_X = recover_x(_Y, 0) or 0
BASE: Point = (_X, _Y, 1, _X * _Y % P)


def is_signature_valid(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return True if an Ed25519 signature is valid."""
    key, commitment = decode_point(public), decode_point(signature[:32])
    factor = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or len(signature) != 64 or factor >= L:
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    left = multiply_point(factor, BASE)
    right = add_points(commitment, multiply_point(int.from_bytes(digest, "little") % L, key))
    same_x = (left[0] * right[2] - right[0] * left[2]) % P == 0
    return same_x and (left[1] * right[2] - right[1] * left[2]) % P == 0


def hash_leaf(entry: bytes) -> bytes:
    """Hash an entry of the log (RFC 6962)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def compute_root(leaves: list[bytes]) -> bytes:
    roots: list[bytes] = []
    for place, leaf in enumerate(leaves):
        roots.append(leaf)
        while place % 2:
            right = roots.pop()
            roots.append(hash_node(roots.pop(), right))
            place //= 2  # the number of trees of this height
    if not roots:
        return hashlib.sha256(b"").digest()
    found = roots.pop()
    while roots:
        found = hash_node(roots.pop(), found)
    return found


def compute_proof_root(entry: bytes, index: int, size: int, hashes: list[bytes]) -> bytes | None:
    """Return the root hash computed from a proof; None if the proof has the wrong length."""
    found, last = hash_leaf(entry), size - 1
    for other in hashes:
        if last == 0:
            return None
        if index % 2 or index == last:
            found = hash_node(other, found)
            while index % 2 == 0 and index:
                index, last = index // 2, last // 2
        else:
            found = hash_node(found, other)
        index, last = index // 2, last // 2
    return found if last == 0 else None


class Unreadable(Exception):
    """A file cannot be parsed. The message names the file and the reason."""


def decode_strict_base64(text: str) -> bytes:
    """Decode base64. Raises ValueError for any character outside its alphabet."""
    return base64.b64decode(text.encode("ascii"), validate=True)


def parse_unsigned_number(text: str) -> int:
    """Parse an unsigned decimal number. Raises ValueError for anything else."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError("it is not a number")
    return int(text)


def format_printable(text: str) -> str:
    """Return text that is safe to print: at most 100 characters, no control characters."""
    shown = "".join(each if each.isprintable() else "?" for each in text[:100])
    return shown if len(text) <= 100 else f"{shown}…"


class Key:
    """A verifier key: name, four-byte ID, public key. Raises ValueError if the text is not one."""

    def __init__(self, text: str) -> None:
        # The encoded key may contain a plus sign; the name cannot.
        self.name, self.id, encoded = text.strip().split("+", 2)
        whole = decode_strict_base64(encoded)
        self.public = whole[1:]
        expected = hashlib.sha256(f"{self.name}\n".encode() + b"\x01" + self.public).hexdigest()[:8]
        if self.id != expected:
            raise ValueError("the id of the key does not match its bytes")
        if whole[:1] != b"\x01" or len(self.public) != 32:
            raise ValueError("it is not an Ed25519 key")


class Checkpoint:
    """A signed head of the log. Raises ValueError if the text is not one."""

    def __init__(self, note: str) -> None:
        self.body, gap, rest = note.rpartition("\n\n")
        lines = self.body.split("\n")
        if not gap or len(lines) != 3:
            raise ValueError("a checkpoint has three lines, an empty one, and signatures")
        self.origin, self.size = lines[0], parse_unsigned_number(lines[1])
        self.root = decode_strict_base64(lines[2])
        self.lines = [line.split(" ") for line in rest.split("\n") if line.startswith("— ")]

    def fault(self, key: Key) -> str:
        """Return the reason why the key's signature is invalid; empty if it is valid."""
        for line in self.lines:
            try:
                _, name, text = line
                blob = decode_strict_base64(text)
            except ValueError:
                # Skip signatures of other kinds.
                continue
            if name == key.name and blob[:4].hex() == key.id:
                body = f"{self.body}\n".encode()
                is_sound = is_signature_valid(key.public, body, blob[4:])
                return "" if is_sound else "its signature is invalid"
        return NOT_SIGNED


class Entry:
    """A log entry: its kind and, for a chain, its name, row count and last hash."""

    def __init__(self, line: str) -> None:
        self.bytes = decode_strict_base64(line)
        kind, *rest = self.bytes.decode("utf-8").rstrip("\n").split("\n")
        self.is_chain = kind == "chain"
        self.is_known = self.is_chain or kind == "after"
        self.scope, self.count, self.last = "", 0, ""
        if self.is_chain:
            self.scope, count, self.last = rest
            self.count = parse_unsigned_number(count)


class Verifier:
    """Collects successful comparisons, errors, and rows without proof."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.said: list[str] = []
        self.faults: list[str] = []
        self.unproven: list[str] = []
        # Row hashes by (chain, number), and the last number of each chain.
        self.hashes: dict[tuple[str, int], str] = {}
        self.ends: dict[str, int] = {}
        # Last row of each chain that a signed checkpoint proves.
        self.proven: dict[str, int] = {}
        self.gaps: dict[str, int] = {}
        self.search = ""
        self.newest: Checkpoint | None = None
        # A signed checkpoint proves the log, which lists all chains.
        self.is_log_signed = False
        # Checkpoints with a valid signature.
        self.anchors: list[tuple[str, Checkpoint]] = []

    def export(self, lines: Iterable[bytes]) -> None:
        """Check the hash chain of every row in an export, and its footer."""
        digest, rows, foot = hashlib.sha256(), 0, None
        previous: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            if foot is not None:
                if line.strip():
                    self.faults.append(LINES_AFTER_END)
                    break
                continue
            row = parse_export_line(line, number)
            if "export" in row and "scope" not in row:
                foot = row
                continue
            digest.update(line)
            rows += 1
            scope, seq = parse_row_place(row, number)
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
        self.check_gaps()

    def foot(self, foot: dict[str, Any], *, rows: int, digest: str) -> None:
        """Compare the export's footer with the number and the digest of the lines above it.

        Raises `Unreadable` if its format is unknown.
        """
        if (foot.get("rows"), foot.get("sha256")) != (rows, digest):
            self.faults.append("the last line of the export does not match the lines before it")
        else:
            self.said.append("its last line counts these rows and has their hash")
        search, note = foot.get("search", ""), foot.get("checkpoint", "")
        if not isinstance(search, str) or not isinstance(note, str):
            raise Unreadable("the last line of the export has an unknown format")
        self.search = search
        if note:
            self.newest = parse_checkpoint(note, "the checkpoint of the export")
            self.signature(self.newest, "the checkpoint of the export")

    def check_gaps(self) -> None:
        """Report missing rows, unless the export is a search, which omits rows on purpose."""
        for scope, first in self.gaps.items():
            if self.search and self.only() is None:
                self.unproven.append(
                    f"{format_printable(scope)}: the export is a search result without some rows,"
                    " so the chain cannot be followed. Export whole chains"
                )
            else:
                self.faults.append(f"{format_printable(scope)}: row {first} is missing")
        only = self.only()
        if only is not None:
            others = [scope for scope in self.ends if scope != only]
            if others:
                self.faults.append(
                    f"the export claims to contain {format_printable(only)} alone but has rows of "
                    f"{len(others)} other chains"
                )
            self.said.append(
                f"the export contains {format_printable(only)} alone, not the whole ledger"
            )
        elif self.search:
            self.said.append(
                f"the export contains results of the search “{format_printable(self.search)}”"
            )

    def only(self) -> str | None:
        """Return the name of the chain in a single-chain export; None for any other export."""
        return self.search if ONE_CHAIN.fullmatch(self.search) else None

    def signature(self, head: Checkpoint, name: str) -> None:
        if fault := head.fault(self.key):
            self.faults.append(f"{name}: {fault}")
        else:
            self.anchors.append((name, head))
            origin = format_printable(head.origin)
            self.said.append(f"{name}: signed by the key, {head.size} entries of {origin}")

    def log(self, entries: list[Entry]) -> None:
        """Compare the log with the signed checkpoints, and the chains with the log."""
        leaves, signed, differs = [hash_leaf(entry.bytes) for entry in entries], 0, False
        for name, head in self.anchors:
            if self.newest is not None and head.origin != self.newest.origin:
                self.unproven.append(f"{name} has another origin than the export and its log")
            elif len(leaves) < head.size:
                self.unproven.append(
                    f"the log has {len(leaves)} entries but {name} counts {head.size}: download a "
                    "newer log"
                )
            elif compute_root(leaves[: head.size]) != head.root:
                differs = True
                self.faults.append(f"the log does not match {name} of {head.size} entries")
            else:
                signed = max(signed, head.size)
                self.said.append(f"the log matches the root of {name}, of {head.size} entries")
        self.is_log_signed = bool(signed)
        if not signed and not differs:
            self.unproven.append(LOG_NOT_COMPARED)
        if signed and len(entries) > signed:
            self.said.append(f"{len(entries) - signed} entries of the log are newer: not compared")
        # Without a signed checkpoint, entries can reveal contradictions but prove nothing.
        self.chains(entries[:signed] if signed else entries, is_signed=bool(signed))

    def chains(self, entries: list[Entry], *, is_signed: bool) -> None:
        if unknown := sum(not entry.is_known for entry in entries):
            self.unproven.append(f"{unknown} entries of the log have an unknown kind")
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
                f"{len(self.proven)} of {len(self.ends)} chains match the signed entries"
            )

    def chain(self, entry: Entry, *, is_signed: bool, is_own: bool) -> None:
        """Compare a chain with one of its log entries.

        `is_own`: the entry is covered by the checkpoint in the export itself.
        """
        scope, end = entry.scope, self.ends[entry.scope]
        if entry.count > end and not is_own:
            self.unproven.append(
                f"{format_printable(scope)}: the log has {entry.count} rows, the export only {end}."
                f" {EXPORT_OLDER}"
            )
        elif self.hashes.get((scope, entry.count)) != entry.last:
            kind = "signed" if is_signed else "in the log"
            self.faults.append(
                f"{format_printable(scope)}: row {entry.count} differs from the one that was {kind}"
            )
        elif is_signed:
            self.proven[scope] = max(self.proven.get(scope, 0), entry.count)

    def absent(self, scopes: list[str]) -> None:
        """Report the chains that the log contains and the export does not."""
        only = self.only()
        if only is not None:
            self.said.append(
                f"other chains of the log that are not in the export: {len(set(scopes) - {only})}"
            )
        elif self.search and scopes:
            self.unproven.append(
                f"the export is a search result without {len(scopes)} chains of the log"
            )
        else:
            for scope in scopes:
                self.faults.append(
                    f"{format_printable(scope)}: the chain is missing from the export"
                )

    def proof(self, text: str) -> None:
        """Check the proof of one chain: the export must contain its last signed row.

        Raises `Unreadable` if the format of the proof is unknown.
        """
        top, _, note = text.partition("\n\n")
        head = parse_checkpoint(note, "the checkpoint of the proof")
        try:
            form, *lines = [each for each in top.split("\n") if not each.startswith("extra ")]
            word, _, index_text = lines[0].partition(" ")
            index, hashes = (
                parse_unsigned_number(index_text),
                [decode_strict_base64(line) for line in lines[1:]],
            )
        except (ValueError, IndexError):
            raise Unreadable("the proof has an unknown format") from None
        if form != PROOF_FORM or word != "index":
            raise Unreadable("the proof has an unknown format")
        known = len(self.anchors)
        self.signature(head, "the checkpoint of the proof")
        for (scope, seq), last in self.hashes.items():
            entry = f"chain\n{scope}\n{seq}\n{last}\n".encode("utf-8", "surrogatepass")
            if compute_proof_root(entry, index, head.size, hashes) == head.root:
                self.said.append(
                    f"{format_printable(scope)}: the proof confirms rows 1 to {seq} as signed"
                )
                if len(self.anchors) > known and scope not in self.gaps:
                    self.proven[scope] = max(self.proven.get(scope, 0), seq)
                return
        self.faults.append("no row of the export matches the proof")

    def conclude(self) -> None:
        """Report the chains and rows without proof."""
        bare = sorted(set(self.ends) - set(self.proven))
        for scope in bare[:MOST_NAMED]:
            self.unproven.append(f"{format_printable(scope)}: not compared with anything signed")
        if len(bare) > MOST_NAMED:
            self.unproven.append(f"{len(bare) - MOST_NAMED} more chains: not compared either")
        if not self.proven:
            self.unproven.append("no row of the export was compared with a signed checkpoint")
        elif self.only() is None and not self.is_log_signed:
            self.unproven.append(CHAINS_NOT_COUNTED)

    def newer(self) -> int:
        """Return the number of rows after the last signed row, summed over all proven chains."""
        return sum(self.ends[scope] - last for scope, last in self.proven.items())

    def outcome(self) -> tuple[str, int]:
        """Return the sentence that summarises the result, and the exit code."""
        if self.faults:
            return "Verification failed.", 1
        if self.unproven:
            return "Nothing is broken, but not everything is proven.", 2
        rows = self.newer()
        later = f" Rows newer than the last signed row, not yet proven: {rows}." if rows else ""
        return f"Everything is verified.{later}", 0


# Search expression of an export of one chain.
ONE_CHAIN = re.compile(r"chat:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# First line of a proof, and the most chains listed individually.
PROOF_FORM = "c2sp.org/tlog-proof@v1"
MOST_NAMED = 20


def parse_export_line(line: bytes, number: int) -> dict[str, Any]:
    """Parse a line of the export. Raises `Unreadable`."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise Unreadable(f"line {number} of the export is not a JSON object")
    return row


def parse_row_place(row: dict[str, Any], number: int) -> tuple[str, int]:
    """Return the chain and the number of a row. Raises `Unreadable`."""
    scope, seq = row.get("scope"), row.get("seq")
    if not isinstance(scope, str) or not isinstance(seq, int) or isinstance(seq, bool):
        raise Unreadable(f"line {number} of the export is not a ledger row")
    return scope, seq


def parse_checkpoint(note: str, name: str) -> Checkpoint:
    """Parse a checkpoint. Raises `Unreadable`."""
    try:
        return Checkpoint(note)
    except ValueError as error:
        raise Unreadable(FILE_NOT_READ.format(name=name, reason=error)) from None


def read_text_file(path: Path, name: str) -> str:
    """Read a file. Raises `Unreadable`."""
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise Unreadable(FILE_NOT_READ.format(name=name, reason=reason)) from None


def parse_verifier_key(given: str) -> Key:
    """Parse the verifier key, given as text or as a file. Raises `Unreadable`."""
    try:
        is_file = Path(given).is_file()
    except (OSError, ValueError):
        is_file = False
    text = read_text_file(Path(given), "the key") if is_file else given
    try:
        return Key(text)
    except ValueError as error:
        reason = error if str(error).startswith(("the id", "it is not an Ed")) else "name+id+base64"
        raise Unreadable(f"the key is not a verifier key: {reason}") from None


def read_log_entries(path: Path) -> list[Entry]:
    """Read the log. Raises `Unreadable`."""
    found = []
    for number, line in enumerate(read_text_file(path, "the log").splitlines(), start=1):
        try:
            found.append(Entry(line))
        except ValueError:
            raise Unreadable(f"line {number} of the log is not an entry") from None
    return found


def verify_files(given: argparse.Namespace) -> Verifier:
    """Compare all given files. Raises `Unreadable`."""
    verifier = Verifier(parse_verifier_key(given.key))
    try:
        with given.export.open("rb") as lines:
            verifier.export(lines)
    except OSError as error:
        raise Unreadable(FILE_NOT_READ.format(name="the export", reason=error.strerror)) from None
    if given.checkpoint:
        name = "the saved checkpoint"
        kept = parse_checkpoint(read_text_file(given.checkpoint, name), name)
        verifier.signature(kept, name)
        if not given.log:
            verifier.unproven.append(f"{name} is compared with the log: add --log")
    if given.log:
        verifier.log(read_log_entries(given.log))
    if given.proof:
        verifier.proof(read_text_file(given.proof, "the proof"))
    verifier.conclude()
    return verifier


def main(arguments: list[str] | None = None) -> int:
    """Verify the files and print the comparisons and errors.

    Return the exit code (0: all proven).
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("export", type=Path)
    parser.add_argument("--key", required=True)
    for name in ("--log", "--proof", "--checkpoint"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args(arguments)
    try:
        verifier = verify_files(given)
    except Unreadable as error:
        lines, sentence, code = [], f"Verification is not possible: {error}.", 2
    else:
        sentence, code = verifier.outcome()
        lines = [
            *verifier.said,
            *(f"NOT PROVEN: {reason}" for reason in verifier.unproven),
            *(f"BROKEN: {fault}" for fault in verifier.faults),
        ]
    for line in [*lines, sentence]:
        # Escape characters that the terminal cannot show.
        encoding = sys.stdout.encoding or "ascii"
        shown = line.encode(encoding, "backslashreplace").decode(encoding)
        sys.stdout.write(f"{shown}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
