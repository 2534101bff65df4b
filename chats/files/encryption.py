"""Encrypts stored files, if the operator enables it.

Each file has a random key, which its row stores encrypted like other secrets. The bytes are
AES-256-GCM in blocks, so that a file of any size can be read as a stream. A block's nonce contains
its number and whether it is the last one, so a missing, moved or changed block is detected. Each
path has its own key, derived from the file's key (HKDF, RFC 5869).
"""

import base64
import io
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from chats.ground.secrets import SecretUnreadable, decrypt, encrypt

KEY_BYTES = 32
BLOCK_BYTES = 64 * 1024
TAG_BYTES = 16


class FileDamaged(OSError):
    """The stored bytes of the file were changed or damaged after encryption."""


def create_file_key() -> str:
    """Return a new random key for a file, encrypted for its row."""
    return encrypt(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode())


@contextmanager
def encrypt_file(file: IO[bytes], *, sealed_key: str, path: str) -> Iterator[IO[bytes]]:
    """Open a temporary file with the content encrypted for `path`, positioned at its start.

    Raises `SecretUnreadable`.
    """
    cipher = build_cipher(sealed_key, path=path)
    file.seek(0)
    with tempfile.TemporaryFile() as encrypted:
        for number, (block, is_last) in enumerate(iter_blocks(file, size=BLOCK_BYTES)):
            encrypted.write(cipher.encrypt(build_nonce(number, is_last=is_last), block, None))
        encrypted.seek(0)
        yield encrypted


def open_encrypted_file(file: IO[bytes], *, sealed_key: str, path: str) -> IO[bytes]:
    """Return the decrypted bytes of a stored file as a stream.

    The stream closes the file. Raises `SecretUnreadable`, with the file closed.
    """
    try:
        cipher = build_cipher(sealed_key, path=path)
    except SecretUnreadable:
        file.close()
        raise
    return io.BufferedReader(DecryptedFile(file, cipher))  # type: ignore[type-var]  # a raw stream


class DecryptedFile(io.RawIOBase):
    """A stream that decrypts block by block. Reading raises `FileDamaged`."""

    def __init__(self, file: IO[bytes], cipher: AESGCM) -> None:
        self._file = file
        self._cipher = cipher
        self._blocks = enumerate(iter_blocks(file, size=BLOCK_BYTES + TAG_BYTES))
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]  # any buffer
        while not self._rest:
            found = next(self._blocks, None)
            if found is None:
                return 0
            self._rest = self._decrypt(*found)
            if not self._rest:
                return 0
        piece = self._rest[: len(buffer)]
        buffer[: len(piece)] = piece
        self._rest = self._rest[len(piece) :]
        return len(piece)

    def _decrypt(self, number: int, block: tuple[bytes, bool]) -> bytes:
        data, is_last = block
        try:
            return self._cipher.decrypt(build_nonce(number, is_last=is_last), data, None)
        except InvalidTag:
            raise FileDamaged(f"block {number} of a file") from None

    def close(self) -> None:
        self._file.close()
        super().close()


def iter_blocks(file: IO[bytes], *, size: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the blocks of a file, each with True if it is the last. An empty file has one block."""
    block = file.read(size)
    while True:
        following = file.read(size)
        yield block, not following
        if not following:
            return
        block = following


def build_cipher(sealed_key: str, *, path: str) -> AESGCM:
    key = base64.b64decode(decrypt(sealed_key))
    derived = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=path.encode())
    return AESGCM(derived.derive(key))


def build_nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])
