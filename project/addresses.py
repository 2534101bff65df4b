"""The address on which the product listens: options, and refusals of unusable addresses."""

import errno
import ipaddress
import os
import socket
from argparse import ArgumentParser, ArgumentTypeError
from contextlib import suppress

from project import instance
from project.env import HOST

LAST_PORT = 65_535


class NotLaunched(Exception):
    """The product cannot be started with these settings; the message says what to do."""


def add_arguments(parser: ArgumentParser) -> None:
    # An empty variable means the default, as for every setting.
    host = os.environ.get("PALIMPSEST_HOST") or "127.0.0.1"
    port = os.environ.get("PALIMPSEST_PORT") or "8420"
    parser.add_argument("--host", type=parse_host, default=host)
    parser.add_argument("--port", type=parse_port, default=port)


def parse_host(said: str) -> str:
    """Return a host name or address. An IPv6 address may have the brackets of a URL.

    Raises ArgumentTypeError for anything else, such as an address with a port.
    """
    host = said[1:-1] if said.startswith("[") and said.endswith("]") else said
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return host
    if not HOST.fullmatch(host.lower()):
        raise ArgumentTypeError(
            f"a host is a name or an address without a port, not {said!r} (--host or"
            " PALIMPSEST_HOST)"
        )
    return host


def parse_port(said: str) -> int:
    """Parse a port number from 0 to 65535. Raises ArgumentTypeError for any other value."""
    if not said.isascii() or not said.isdigit() or not 0 <= int(said) <= LAST_PORT:
        raise ArgumentTypeError(
            f"a port is a number from 1 to {LAST_PORT}, not {said!r} (--port or PALIMPSEST_PORT)"
        )
    return int(said)


def refuse_open_network(host: str) -> None:
    """Refuse to listen on a network without TLS, because passwords would be sent unencrypted.

    Raises NotLaunched.
    """
    if is_loopback(host) or instance.BEHIND_TLS or instance.TRUSTED_PROXY:
        return
    raise NotLaunched(
        f"Listening on {host} without TLS would send passwords in the clear. Put a TLS proxy in"
        " front and set PALIMPSEST_PUBLIC_URL=https://… and TRUSTED_PROXY=1."
    )


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refuse_used_port(host: str, port: int) -> None:
    """Refuse an address on which this machine cannot listen, before anything is started.

    Raises NotLaunched.
    """
    if not 0 < port <= LAST_PORT:
        raise NotLaunched(
            describe_address_error(host, port, OverflowError(f"ports are 1 to {LAST_PORT}"))
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # A port with connections in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            # Binding alone succeeds if another program has bound the port with the same option.
            probe.listen()
    except OSError as error:
        raise NotLaunched(describe_address_error(host, port, error)) from error


def describe_address_error(host: str, port: int, error: Exception) -> str:
    """Return the error message for an address that cannot be used."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return (
            f"Port {port} on {host} is used by another program. Stop it, or choose another port:"
            f" PALIMPSEST_PORT={port + 1 if port < LAST_PORT else port - 1} make run"
        )
    reason = "needs more permissions" if number == errno.EACCES else f"is not possible ({error})"
    return f"Listening on {host}, port {port}, {reason}. Set PALIMPSEST_HOST and PALIMPSEST_PORT."
