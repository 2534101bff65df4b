"""Signed notes, checkpoints and proofs in the formats of C2SP.

Other tools can verify them. A checkpoint is a note of three lines: the origin, the size
of the log, its root in base64. A signature line contains the signer's name, then four
bytes of the key id and the signature.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ED25519 = b"\x01"
PROOF = "c2sp.org/tlog-proof@v1"
DASH = "— "


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The three lines of a checkpoint, and its unchanged signature lines."""

    origin: str
    size: int
    root: bytes
    signatures: tuple[str, ...] = ()

    @property
    def body(self) -> str:
        return format_checkpoint_body(self.origin, self.size, self.root)


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def format_checkpoint_body(origin: str, size: int, root: bytes) -> str:
    """Return the text of a checkpoint, which is signed."""
    return f"{origin}\n{size}\n{encode_base64(root)}\n"


def compute_key_id(name: str, public: bytes) -> bytes:
    """Compute the four bytes that identify an Ed25519 key in a signature line."""
    return hashlib.sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]


def format_verifier_key(name: str, public: bytes) -> str:
    """Return a public key in the verifier format of signed notes: name, id and key."""
    return f"{name}+{compute_key_id(name, public).hex()}+{encode_base64(ED25519 + public)}"


def format_pem_key(public: bytes) -> str:
    """Return a public key in PEM format, as OpenSSL expects it."""
    key = Ed25519PublicKey.from_public_bytes(public)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def sign_note(body: str, *, name: str, keys: Sequence[Ed25519PrivateKey]) -> str:
    """Return a note: the body, an empty line, and one signature line per key."""
    lines = []
    for key in keys:
        public = key.public_key().public_bytes_raw()
        signature = compute_key_id(name, public) + key.sign(body.encode())
        lines.append(f"{DASH}{name} {encode_base64(signature)}\n")
    return f"{body}\n{''.join(lines)}"


def parse_note_checkpoint(note: str) -> Checkpoint:
    """Parse the checkpoint in a note. Raises ValueError if there is none."""
    body, gap, rest = note.rpartition("\n\n")
    origin, size, root, *more = body.split("\n")
    if not gap or more or not size.isascii() or not size.isdigit():
        raise ValueError("This is not a checkpoint.")
    lines = tuple(line for line in rest.split("\n") if line)
    return Checkpoint(origin, int(size), base64.b64decode(root, validate=True), lines)


def is_signed(note: str, *, name: str, public: bytes) -> bool | None:
    """Return True if a note has a valid signature by this key.

    Returns False if the key's signature is invalid, and None if the note has no signature
    by this key.
    """
    body, _, rest = note.rpartition("\n\n")
    for line in rest.split("\n"):
        signer, _, text = line.removeprefix(DASH).partition(" ")
        blob = decode_base64_or_empty(text) if line.startswith(DASH) else b""
        if signer == name and blob[:4] == compute_key_id(name, public):
            try:
                Ed25519PublicKey.from_public_bytes(public).verify(blob[4:], f"{body}\n".encode())
            except InvalidSignature:
                return False
            return True
    return None


def decode_base64_or_empty(text: str) -> bytes:
    """Decode base64; return empty bytes for invalid input."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def format_inclusion_proof(note: str, *, index: int, hashes: Sequence[bytes]) -> str:
    """Return a proof that the entry at `index` is in the log of a checkpoint."""
    listed = "".join(f"{encode_base64(one)}\n" for one in hashes)
    return f"{PROOF}\nindex {index}\n{listed}\n{note}"


def encode_chain_entry(scope: str, count: int, last_hash: str) -> bytes:
    """Return the entry that pins a chain: its name, row count and last hash, one per line."""
    return f"chain\n{scope}\n{count}\n{last_hash}\n".encode()


def encode_first_entry(before: str) -> bytes:
    """Return the first entry of an origin that succeeds another origin.

    The entry contains the hash of the last note of the previous origin.
    """
    return f"after\n{hashlib.sha256(before.encode()).hexdigest()}\n".encode()
