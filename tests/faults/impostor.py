"""A server with a self-signed certificate that takes the place of a provider."""

import socket
import ssl
import threading
from contextlib import suppress
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.utils import timezone


class Impostor:
    """Completes the handshake with its own certificate, and records all data it receives."""

    def __init__(self, folder: Path) -> None:
        self.heard = b""
        self.callers = 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(own_certificate(folder))
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.door.getsockname()[1])
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        self.door.close()

    def serve(self) -> None:
        """Accept connections one after the other until the server is closed."""
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            self.callers += 1
            client.settimeout(5)
            with suppress(OSError), self.context.wrap_socket(client, server_side=True) as secured:
                self.heard += secured.recv(65536)


def own_certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "impostor")])
    now = timezone.now()
    address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    written = folder / "impostor.pem"
    written.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return written
