"""Uploads many files at once, each on its own connection.

`python -m benchmarks.uploads --socket PATH [--number 200] [--mib 5]` sends text files with the API
key of the environment variable KEY. It prints the duration and the number of each status.
"""

import argparse
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator

import httpx2

PIECE = 64 * 1024
EDGE = "a-line-between-parts"
HEAD = (
    f"--{EDGE}\r\n"
    'Content-Disposition: form-data; name="file"; filename="large {number}.txt"\r\n\r\n'
)


def iter_body(number: int, *, size: int) -> Iterator[bytes]:
    """Yield the body of an upload of a text that no other upload has."""
    yield HEAD.format(number=number).encode()
    line = f"Upload {number} has this line in each of its pieces.\n".encode()
    piece = (line * (PIECE // len(line) + 1))[:PIECE]
    for _ in range(size // PIECE):
        yield piece
    yield f"\r\n--{EDGE}--\r\n".encode()


def upload_file(socket: str, number: int, *, size: int, seen: Counter[str]) -> None:
    """Upload one file and count its status, or its error."""
    headers = {
        "Authorization": f"Bearer {os.environ['KEY']}",
        "Content-Type": f"multipart/form-data; boundary={EDGE}",
    }
    transport = httpx2.HTTPTransport(uds=socket)
    try:
        with httpx2.Client(transport=transport, headers=headers, timeout=300) as client:
            body = iter_body(number, size=size)
            answer = client.post("http://localhost/api/v1/files", content=body)
            seen[str(answer.status_code)] += 1
    except httpx2.HTTPError as error:
        seen[type(error).__name__] += 1


def main() -> None:
    """Upload all files and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--mib", type=int, default=5)
    asked = parser.parse_args()
    seen: Counter[str] = Counter()
    begun = time.perf_counter()
    threads = [
        threading.Thread(
            target=upload_file,
            args=(asked.socket, number),
            kwargs={"size": asked.mib * 1024 * 1024, "seen": seen},
        )
        for number in range(asked.number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{time.perf_counter() - begun:.1f} s: {dict(seen)}", flush=True)  # noqa: T201  # the result


if __name__ == "__main__":
    main()
