"""Requests to a time-stamping authority (RFC 3161), and a first look at what it answers.

The request is written by hand: it is five values in DER. Of a response only the outside is read;
its signature is verified with OpenSSL, by whoever trusts the authority (`docs/audit.md`).
"""

# SHA-256 as an algorithm: its object identifier, 2.16.840.1.101.3.4.2.1, and no parameters.
SHA256 = bytes.fromhex("300d06096086480165030402010500")
INTEGER, OCTETS, SEQUENCE = 0x02, 0x04, 0x30
YES = b"\x01\x01\xff"
GRANTED = (0, 1)


def request(digest: bytes, *, nonce: int) -> bytes:
    """Write the request for a timestamp of a SHA-256, with the authority's certificate."""
    imprint = der(SEQUENCE, SHA256, der(OCTETS, digest))
    return der(SEQUENCE, integer(1), imprint, integer(nonce), YES)


def fault_of(response: bytes, *, digest: bytes, nonce: int) -> str:
    """Say why a response is no answer to the request; empty when it seems to be one."""
    try:
        tag, whole, rest = read(response)
        status_tag, status, token = read(whole)
        number_tag, number, _ = read(status)
    except ValueError:
        return "unreadable"
    if rest or (tag, status_tag, number_tag) != (SEQUENCE, SEQUENCE, INTEGER):
        return "unreadable"
    if int.from_bytes(number, "big") not in GRANTED:
        return "refused"
    asked_for = der(OCTETS, digest) in token and integer(nonce) in token
    return "" if asked_for else "of_something_else"


def der(tag: int, *parts: bytes) -> bytes:
    """Write a value of a kind in DER."""
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def integer(number: int) -> bytes:
    """Write a number that is not negative in DER."""
    return der(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def read(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the body of the first value, and what follows. Raises ValueError."""
    if len(data) < 2:
        raise ValueError("no value")
    size, start = data[1], 2
    if size >= 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise ValueError("cut off")
    return data[0], data[start : start + size], data[start + size :]
