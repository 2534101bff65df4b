"""Starts the fake model server as a separate process and controls it from tests."""

import json
import subprocess
import sys
import time
import urllib.request
from types import TracebackType
from typing import Any, Self

from tests.support.repository import ROOT


class FakeServer:
    """`with FakeServer() as server:` runs the server on a free port until the block ends.

    `kind` is that of the account that speaks to it: `openai` or `anthropic`.
    """

    def __init__(self, *, port: int = 0, counter: str = "chars4", kind: str = "openai") -> None:
        self.kind = kind
        self._arguments = ["--port", str(port), "--counter", counter]
        self.port = port

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.fakes.{self.kind}_server", *self._arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        output = self._process.stdout
        line = output.readline() if output else ""
        if not line.strip().isdecimal():
            self.__exit__(None, None, None)
            raise RuntimeError("The fake model server did not start; see its error output.")
        self.port = int(line)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=10)
        if self._process.stdout:
            self._process.stdout.close()

    @property
    def host(self) -> str:
        """`host:port`, in the format of ALLOWED_PRIVATE_PROVIDERS."""
        return f"127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The base URL for a provider account."""
        return f"http://{self.host}/v1" if self.kind == "openai" else f"http://{self.host}"

    def configure(self, **settings: Any) -> dict[str, Any]:
        """Merge settings; see scripting.Script.configure for their names."""
        answer: dict[str, Any] = self._ask("POST", "/_config", settings)
        return answer

    def requests(self, *, since: int = 0) -> list[dict[str, Any]]:
        """The requests that the model received, oldest first."""
        answer: list[dict[str, Any]] = self._ask("GET", f"/_requests?since={since}")
        return answer

    def forget_requests(self) -> None:
        """Clear the recorded requests."""
        self._ask("DELETE", "/_requests")

    def stats(self) -> dict[str, int]:
        """Counts of requests, connections and outcomes."""
        answer: dict[str, int] = self._ask("GET", "/_stats")
        return answer

    def wait_for_outcome(self, outcome: str, *, timeout: float = 2.0) -> dict[str, Any]:
        """The newest request that ended with this outcome.

        Raises TimeoutError after `timeout` seconds.
        """
        until = time.monotonic() + timeout
        records: list[dict[str, Any]] = []
        while time.monotonic() < until:
            records = self.requests()
            if records and records[-1]["outcome"] == outcome:
                return records[-1]
            time.sleep(0.02)
        ends = [record["outcome"] for record in records]
        raise TimeoutError(f"The newest request did not end as {outcome}: {ends}.")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://{self.host}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - as above
            return json.load(response)
