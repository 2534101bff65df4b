"""Requests to a time-stamping authority (RFC 3161), and a basic check of the response.

The request is built without a library, because it is only five DER values. Only the
outer structure of a response is parsed. Auditors verify its signature with OpenSSL
(`docs/audit.md`).
"""

# SHA-256 as an AlgorithmIdentifier: OID 2.16.840.1.101.3.4.2.1, without parameters.
SHA256 = bytes.fromhex("300d06096086480165030402010500")
INTEGER, OCTETS, SEQUENCE = 0x02, 0x04, 0x30
YES = b"\x01\x01\xff"
GRANTED = (0, 1)


def build_timestamp_request(digest: bytes, *, nonce: int) -> bytes:
    """Build the request for a timestamp of a SHA-256, including the authority's certificate."""
    imprint = encode_der_value(SEQUENCE, SHA256, encode_der_value(OCTETS, digest))
    return encode_der_value(
        SEQUENCE, encode_der_integer(1), imprint, encode_der_integer(nonce), YES
    )


def find_response_fault(response: bytes, *, digest: bytes, nonce: int) -> str:
    """Return the code of a response's fault; empty if the response seems valid.

    Codes: `unreadable`, `refused`, `of_something_else` (another digest or nonce).
    """
    try:
        tag, whole, rest = parse_der_value(response)
        status_tag, status, token = parse_der_value(whole)
        number_tag, number, _ = parse_der_value(status)
    except ValueError:
        return "unreadable"
    if rest or (tag, status_tag, number_tag) != (SEQUENCE, SEQUENCE, INTEGER):
        return "unreadable"
    if int.from_bytes(number, "big") not in GRANTED:
        return "refused"
    asked_for = encode_der_value(OCTETS, digest) in token and encode_der_integer(nonce) in token
    return "" if asked_for else "of_something_else"


def encode_der_value(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def encode_der_integer(number: int) -> bytes:
    return encode_der_value(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def parse_der_value(data: bytes) -> tuple[int, bytes, bytes]:
    """Return tag, body and remainder of the first value. Raises ValueError."""
    if len(data) < 2:
        raise ValueError("no value")
    size, start = data[1], 2
    if size >= 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if len(data) < start + size:
        raise ValueError("cut off")
    return data[0], data[start : start + size], data[start + size :]
