"""A PostgreSQL proxy that can drop the answer to a COMMIT, so its outcome is unknown."""

import socket
import threading
from contextlib import suppress

QUERY = b"Q"


class CommitLoser:
    """Forwards connections to a server. While armed, it drops one after its commit was sent."""

    def __init__(self, port: int) -> None:
        self.server = ("127.0.0.1", port)
        self.lost = 0
        self.armed = 0
        self.guard = threading.Lock()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.door.getsockname()[1])
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections; open ones end when both sides close."""
        self.door.close()

    def serve(self) -> None:
        """Accept connections until the proxy is closed."""
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            server = socket.create_connection(self.server)
            threading.Thread(target=self.up, args=(client, server), daemon=True).start()
            threading.Thread(target=self.down, args=(client, server), daemon=True).start()

    def up(self, client: socket.socket, server: socket.socket) -> None:
        """Forward the client's data. Stop after a commit whose answer is to be dropped."""
        with suppress(OSError):
            while data := client.recv(65536):
                loses = is_commit(data) and self.takes_one()
                if loses:
                    # The server must have committed before the client notices the lost connection.
                    client.shutdown(socket.SHUT_WR)
                server.sendall(data)
                if loses:
                    break
        self.end(server, client, wait=True)

    def down(self, client: socket.socket, server: socket.socket) -> None:
        """Forward the server's answers."""
        with suppress(OSError):
            while data := server.recv(65536):
                with suppress(OSError):
                    client.sendall(data)
        self.end(client, server, wait=False)

    def end(self, one: socket.socket, other: socket.socket, *, wait: bool) -> None:
        """Close a side; the server's side only for writing, so that it finishes its work."""
        with suppress(OSError):
            one.shutdown(socket.SHUT_WR if wait else socket.SHUT_RDWR)
        if not wait:
            one.close()
            other.close()

    def arm(self, commits: int) -> None:
        """Drop the answers of the next commits."""
        with self.guard:
            self.armed = commits

    def takes_one(self) -> bool:
        """Return True if this commit's answer is to be dropped."""
        with self.guard:
            if not self.armed:
                return False
            self.armed -= 1
            self.lost += 1
            return True


def is_commit(data: bytes) -> bool:
    """Return True if a client's data ends a transaction."""
    return b"COMMIT" in data[-64:]
