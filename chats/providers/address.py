"""SSRF protection: decides which addresses of providers, tool servers and webhooks may be called.

There are two checks, because a name may resolve differently later. `check_base_url` checks the URL
that was entered. `check_addresses` checks the resolved addresses at each connection, and the caller
connects to exactly those.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal

MAX_URL_LENGTH = 4096
DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Standing = Literal["public", "private", "blocked"]

IPNetworks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]


def _networks(*texts: str) -> IPNetworks:
    return tuple(ipaddress.ip_network(text) for text in texts)


# Allowed only if an operator lists host:port. 100.64.0.0/10 is carrier-grade NAT and private
# meshes.
_PRIVATE = _networks(
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "::1/128",
    "fc00::/7",
)
# IANA's special-purpose registries as a list, because `is_global` of `ipaddress` differs between
# Python releases. 2001::/23 contains Teredo, 2002::/16 is 6to4: both relay to an IPv4 address
# chosen by the sender.
_RESERVED = _networks(
    "0.0.0.0/8",
    "169.254.0.0/16",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/3",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
)
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
# Addresses of cloud metadata services that are not link-local: AWS over IPv6, Alibaba, Azure (a
# public address), Google over IPv6. Link-local ones are blocked as such.
_METADATA = frozenset(
    ipaddress.ip_address(a)
    for a in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "fd20:ce::254")
)
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class CheckedUrl:
    """A base URL that passed the check.

    `url` has no trailing slash. `host` is in lower case, without the brackets of an IPv6 address.
    """

    url: str
    scheme: str
    host: str
    port: int


class AddressRefused(Refusal):
    """This instance may not call the address."""

    code = "base_url_refused"
    status = 422
    param = "base_url"

    def __init__(self, sentence: str, **details: Any) -> None:
        self.sentence = sentence
        super().__init__(**details)


def check_base_url(url: str, *, allowed_private: Collection[str]) -> CheckedUrl:
    """Check a URL as typed, without DNS.

    `allowed_private` holds `host:port` entries as in the URL. Only these may be local, private or
    plain http. Raises AddressRefused.
    """
    parts, port = _split(url)
    host = _check_host(parts)
    listed = is_listed(host=host, port=port, allowed_private=allowed_private)
    literal = _literal(host)
    if literal is not None:
        check_addresses(
            host=host, port=port, addresses=[str(literal)], allowed_private=allowed_private
        )
    elif _is_local_name(host) and not listed:
        raise _build_refusal(host, port)
    if parts.scheme == "http" and not listed:
        raise AddressRefused(
            gettext_noop(
                "Plain http would send the key unencrypted. Use https, or list {server} in "
                "ALLOWED_PRIVATE_PROVIDERS if you run this server."
            ),
            server=_join_host_port(host, port),
        )
    return CheckedUrl(url=url.rstrip("/"), scheme=parts.scheme, host=host, port=port)


def check_addresses(
    *, host: str, port: int, addresses: Iterable[str], allowed_private: Collection[str]
) -> tuple[str, ...]:
    """Check all addresses to which a host resolved. One bad address refuses all of them.

    DNS rebinding uses names with both good and bad addresses. Returns the addresses to connect to,
    in the given order. Raises AddressRefused.
    """
    listed = is_listed(host=host, port=port, allowed_private=allowed_private)
    checked = []
    for address in addresses:
        standing = _classify_address(ipaddress.ip_address(address))
        if standing == "blocked":
            raise AddressRefused(
                gettext_noop(
                    "This address leads to a reserved, link-local or metadata network, which is "
                    "never allowed. Enter the address of a model server."
                )
            )
        if standing == "private" and not listed:
            raise _build_refusal(host, port)
        checked.append(address)
    if not checked:
        raise AddressRefused(gettext_noop("This host name has no address. Check its spelling."))
    return tuple(checked)


def is_private(url: str, *, allowed_private: Collection[str]) -> bool:
    """Return True if an allowed URL is on this host or in a private network.

    A host name counts as private if an operator listed it. It is not resolved.
    """
    try:
        checked = check_base_url(url, allowed_private=allowed_private)
    except AddressRefused:
        return False
    literal = _literal(checked.host)
    if literal is not None:
        return _classify_address(literal) == "private"
    return is_listed(host=checked.host, port=checked.port, allowed_private=allowed_private)


def is_listed(*, host: str, port: int, allowed_private: Collection[str]) -> bool:
    """Return True if an operator allowed this host and port to be local, private or plain http."""
    return _join_host_port(host, port) in {entry.strip().lower() for entry in allowed_private}


def _split(url: str) -> tuple[SplitResult, int]:
    # `urlsplit` silently drops tabs and newlines. The checked address must be the one called.
    if len(url) > MAX_URL_LENGTH or not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
        raise AddressRefused(
            gettext_noop(
                "The address must not contain spaces or special characters. Write an international "
                "host name in its xn-- form."
            )
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressRefused(
            gettext_noop("This is not a valid address. Write https://host/v1.")
        ) from None
    if parts.scheme not in DEFAULT_PORTS:
        raise AddressRefused(gettext_noop("The address must start with https:// or http://."))
    if "@" in parts.netloc:
        raise AddressRefused(
            gettext_noop("The address must not contain a user name or password. Use the key field.")
        )
    if "?" in url or "#" in url:
        raise AddressRefused(
            gettext_noop(
                "The address must not contain a query or a fragment (? or #). Remove this part."
            )
        )
    if port == 0 or parts.netloc.endswith(":"):
        raise AddressRefused(
            gettext_noop("The port is missing or 0. Remove the colon or add a port.")
        )
    return parts, port or DEFAULT_PORTS[parts.scheme]


def _check_host(parts: SplitResult) -> str:
    host = (parts.hostname or "").lower()
    if parts.netloc.startswith("["):
        return _check_ipv6(host)
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise AddressRefused(
            gettext_noop("The host name is not valid. Write it without a dot at the end.")
        )
    if host in _METADATA_NAMES:
        raise AddressRefused(
            gettext_noop(
                "This host name belongs to a cloud’s metadata service, which is never allowed. "
                "Enter the address of a model server."
            )
        )
    # Browsers and resolvers read names that end in a number (2130706433, 0x7f.1, 0177.0.0.1) as
    # IPv4. Only the plain dotted form is accepted, so that no address is ambiguous.
    if _NUMERIC_LABEL.fullmatch(labels[-1]) and _literal(host) is None:
        raise AddressRefused(
            gettext_noop("Write an IPv4 address as four decimal numbers, such as 192.0.2.7.")
        )
    return host


def _check_ipv6(host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        raise AddressRefused(
            gettext_noop("The IPv6 address in the brackets is not valid. Check its spelling.")
        ) from None
    if address.scope_id or address.ipv4_mapped:
        raise AddressRefused(
            gettext_noop(
                "Write the IPv6 address without a zone. Write an IPv4 address in IPv4 notation."
            )
        )
    return str(address)


def _literal(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_local_name(host: str) -> bool:
    return "." not in host or host.endswith((".localhost", ".local", ".internal"))


def _classify_address(address: IPAddress) -> Standing:
    address = _extract_ipv4(address)
    # Metadata first: some of its addresses are in private or public networks.
    if address in _METADATA or any(address in net for net in _RESERVED):
        return "blocked"
    if any(address in net for net in _PRIVATE):
        return "private"
    return "public" if address.version == 4 or address in _GLOBAL_IPV6 else "blocked"


def _extract_ipv4(address: IPAddress) -> IPAddress:
    """Return the IPv4 address in an IPv4-mapped or NAT64 (RFC 6052) IPv6 address.

    Other addresses are returned unchanged.
    """
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def _build_refusal(host: str, port: int) -> AddressRefused:
    return AddressRefused(
        gettext_noop(
            "This address is on a local or private network. To allow it, add {server} to "
            "ALLOWED_PRIVATE_PROVIDERS."
        ),
        server=_join_host_port(host, port),
    )


def _join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
