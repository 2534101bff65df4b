"""Uploads many files at once, each on its own connection.

`python -m benchmarks.uploads --socket PATH [--number 200] [--mib 5]` sends text files with the API
key in the environment variable KEY. It prints the duration and the number of each status. One
thread writes to all connections, because this program shares its cores with the measured server.
"""

import argparse
import asyncio
import os
import time
from collections import Counter

PIECE = 64 * 1024
EDGE = "a-line-between-parts"
HEAD = (
    f"--{EDGE}\r\n"
    'Content-Disposition: form-data; name="file"; filename="large {number}.txt"\r\n\r\n'
)
END = f"\r\n--{EDGE}--\r\n".encode()
REQUEST = (
    "POST /api/v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    "Authorization: Bearer {key}\r\nContent-Length: {length}\r\n"
    f"Content-Type: multipart/form-data; boundary={EDGE}\r\n\r\n"
)


async def upload_file(socket: str, number: int, *, pieces: int) -> str:
    """Upload a text file with unique content; return the status of the response."""
    reader, writer = await asyncio.open_unix_connection(socket)
    head = HEAD.format(number=number).encode()
    line = f"Upload {number} has this line in each of its pieces.\n".encode()
    piece = (line * (PIECE // len(line) + 1))[:PIECE]
    length = len(head) + pieces * PIECE + len(END)
    request = REQUEST.format(key=os.environ["KEY"], length=length).encode()
    for sent in [request, head, *[piece] * pieces, END]:
        writer.write(sent)
        await writer.drain()
    status = await reader.readline()
    await reader.read()
    writer.close()
    return status.split()[1].decode()


async def upload_all(socket: str, *, number: int, pieces: int) -> Counter[str]:
    """Upload all files at once; count each status and each kind of error."""
    uploads = [upload_file(socket, each, pieces=pieces) for each in range(number)]
    ended = await asyncio.gather(*uploads, return_exceptions=True)
    return Counter(end if isinstance(end, str) else type(end).__name__ for end in ended)


def main() -> None:
    """Upload all files and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--mib", type=int, default=5)
    asked = parser.parse_args()
    begun = time.perf_counter()
    pieces = asked.mib * 1024 * 1024 // PIECE
    seen = asyncio.run(upload_all(asked.socket, number=asked.number, pieces=pieces))
    print(f"{time.perf_counter() - begun:.1f} s: {dict(seen)}", flush=True)  # noqa: T201  # the result


if __name__ == "__main__":
    main()
