"""The client of `compose_smoke.sh`: signs in, chats and requests a summary, with Python alone.

`python compose_client.py ADDRESS KEY_FILE STEP [VALUE …]`. It uses plain HTTP, like the TLS proxy
in front of the containers, so it sends X-Forwarded-Proto and stores the secure cookies itself.
"""

import json
import re
import sys
import time
import urllib.error
import urllib.request
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

HOST = "chat.example.org"
SECONDS = 120


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Returns a redirect as the response."""

    def redirect_request(self, *_given: Any) -> None:
        """Do not follow redirects."""


class Person:
    """A browser, or a client with an API key."""

    def __init__(self, address: str, key_file: Path) -> None:
        self.address = address
        self.key_file = key_file
        self.cookies: dict[str, str] = {}
        self.opener = urllib.request.build_opener(NoRedirect)

    def send(self, method: str, path: str, data: bytes | None, **headers: str) -> tuple[int, str]:
        """Send a request; return status and body."""
        given = {"Host": HOST, "X-Forwarded-Proto": "https", "Referer": f"https://{HOST}/"}
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        request = urllib.request.Request(  # noqa: S310  # the address is the caller's own
            self.address + path, data, {**given, **headers, "Cookie": cookies}, method=method
        )
        try:
            with self.opener.open(request, timeout=30) as answer:
                return self.heard(answer)
        except urllib.error.HTTPError as error:
            return self.heard(error)

    def heard(self, answer: Any) -> tuple[int, str]:
        """Store the cookies of a response; return its status and body."""
        for line in answer.headers.get_all("Set-Cookie") or []:
            self.cookies |= {name: one.value for name, one in SimpleCookie(line).items()}
        return answer.status, answer.read().decode()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the REST API with the key; return the response. Exits if it is refused."""
        key = self.key_file.read_text(encoding="utf-8").splitlines()[0]
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        status, told = self.send(method, f"/api/v1/{path}", data, **headers)
        if status >= 300:
            sys.exit(f"{method} {path} answered {status}: {told[:500]}")
        return json.loads(told)

    def sign_in(self, link: str) -> None:
        """Sign in by a link, create an API key and store it."""
        self.send("GET", link, None)
        token = self.cookies["__Host-csrf"]
        status, told = self.send(
            "POST", link, f"csrfmiddlewaretoken={token}".encode(), Origin=f"https://{HOST}"
        )
        if status != 302:
            sys.exit(f"The sign-in answered {status}: {told[:500]}")
        headers = {"Content-Type": "application/json", "X-CSRFToken": self.cookies["__Host-csrf"]}
        body = {"name": "Smoke test", "scopes": ["chats:read", "chats:write"]}
        status, told = self.send("POST", "/api/v1/keys", json.dumps(body).encode(), **headers)
        if status != 201:
            sys.exit(f"The key was refused with {status}: {told[:500]}")
        self.key_file.write_text(f"{json.loads(told)['secret']}\n", encoding="utf-8")
        self.key_file.chmod(0o600)

    def chat(self, text: str, number: int) -> None:
        """Send a message and wait for its reply; the chat then has `number` questions."""
        lines = self.key_file.read_text(encoding="utf-8").splitlines()
        if len(lines) < 2:
            lines.append(self.call("POST", "chats", {})["id"])
            self.key_file.write_text("\n".join(lines), encoding="utf-8")
        sent = self.call("POST", f"chats/{lines[1]}/messages", {"text": text})
        path = f"chats/{lines[1]}/turns/{sent['turn']['id']}"
        self.wait(lambda: self.call("GET", path)["status"] == "completed", what="the reply")
        listed = self.call("GET", f"chats/{lines[1]}/messages?limit=100")["data"]
        asked = sum(one["role"] == "user" for one in listed)
        if asked < number or not any(text in json.dumps(one, ensure_ascii=False) for one in listed):
            sys.exit(f"The chat has {asked} questions, not {number}.")

    def summary(self) -> None:
        """Send messages until the chat is long, request a summary and wait until it is used."""
        for number in range(8):
            self.chat(f"Remark {number}: the river rises a little. " * 30, 2 + number)
        chat = self.key_file.read_text(encoding="utf-8").splitlines()[1]
        self.call("POST", f"chats/{chat}/compactions", {})

        def is_published() -> bool:
            rows = self.call("GET", f"chats/{chat}/compactions")["data"]
            return any(row["status"] == "published" for row in rows)

        self.wait(is_published, what="the summary")

    def workers(self, count: int) -> None:
        """Wait until `count` reply workers have a heartbeat."""

        def are_alive() -> bool:
            told = json.loads(self.send("GET", "/readyz", None)[1])
            return len([name for name in told["workers"] if re.match("replies@", name)]) >= count

        self.wait(are_alive, what=f"{count} workers")

    def wait(self, look: Any, *, what: str) -> None:
        """Wait until `look` returns True; exit with a message if that takes too long."""
        give_up = time.monotonic() + SECONDS
        while not look():
            if time.monotonic() > give_up:
                sys.exit(f"It took more than {SECONDS} s: {what}.")
            time.sleep(0.5)


def main() -> None:
    """Run the step given on the command line."""
    address, key_file, step, *values = sys.argv[1:]
    person = Person(address, Path(key_file))
    if step == "sign-in":
        person.sign_in(values[0])
    elif step == "chat":
        person.chat(values[0], int(values[1]))
    elif step == "summary":
        person.summary()
    elif step == "workers":
        person.workers(int(values[0]))
    else:
        sys.exit(f"Unknown step {step!r}.")
    print(f"{step}: done")  # noqa: T201  # a program of the console


if __name__ == "__main__":
    main()
