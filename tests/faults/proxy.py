"""A door before PostgreSQL that can lose the answer to a COMMIT: nobody knows then if it held."""

import socket
import threading
from contextlib import suppress

QUERY = b"Q"


class CommitLoser:
    """Passes connections on to a server; while armed, drops one when its commit was sent."""

    def __init__(self, port: int) -> None:
        self.server = ("127.0.0.1", port)
        self.lost = 0
        self.armed = 0
        self.guard = threading.Lock()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.door.getsockname()[1])
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self) -> None:
        """Take no more connections; those that are open end with their two sides."""
        self.door.close()

    def serve(self) -> None:
        """Take connections until the door is closed."""
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            server = socket.create_connection(self.server)
            threading.Thread(target=self.up, args=(client, server), daemon=True).start()
            threading.Thread(target=self.down, args=(client, server), daemon=True).start()

    def up(self, client: socket.socket, server: socket.socket) -> None:
        """What the client says; after a commit that is to be lost, nothing more."""
        with suppress(OSError):
            while data := client.recv(65536):
                loses = is_commit(data) and self.takes_one()
                if loses:
                    # The server must have done it before the client hears that it is gone.
                    client.shutdown(socket.SHUT_WR)
                server.sendall(data)
                if loses:
                    break
        self.end(server, client, wait=True)

    def down(self, client: socket.socket, server: socket.socket) -> None:
        """What the server answers."""
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
        """Lose the answers of the next commits."""
        with self.guard:
            self.armed = commits

    def takes_one(self) -> bool:
        """Whether this commit's answer is to be lost."""
        with self.guard:
            if not self.armed:
                return False
            self.armed -= 1
            self.lost += 1
            return True


def is_commit(data: bytes) -> bool:
    """Whether a client's bytes end a transaction."""
    return b"COMMIT" in data[-64:]
