"""Typed readers of environment variables.

Every error message names the variable, because a server has many of them.
"""

import ipaddress
import json
import os
import re
import shlex
import warnings
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

# Renamed settings, by new name. The old name works for one release.
RENAMED = {"TURNS_PER_USER": "RUNS_PER_USER", "TURNS_PER_KEY": "RUNS_PER_KEY"}
MOST_PROXIES = 20
# The largest whole number: one that a database can store.
LARGEST = 2**63 - 1
# A date this far from now is still a date. Longer durations overflow.
LONGEST = timedelta(days=36_500)
HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")


class Misconfigured(Exception):
    """An environment variable has an unusable value."""


def read_string(name: str, default: str = "") -> str:
    """Read the variable; `NAME_FILE` may name a file that contains its value (container secrets).

    Raises Misconfigured if that file cannot be read.
    """
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text"
            raise Misconfigured(
                f"{name}_FILE names a file that cannot be read: {reason}."
            ) from error
    if name in RENAMED and name not in os.environ and RENAMED[name] in os.environ:
        warnings.warn(
            f"{RENAMED[name]} was renamed to {name}. The old name works until the next release.",
            FutureWarning,
            stacklevel=2,
        )
        return os.environ[RENAMED[name]]
    return os.environ.get(name, default)


def read_bool(name: str, *, default: bool = False) -> bool:
    """Read a yes/no variable: 1, true, yes, on or 0, false, no, off.

    Raises Misconfigured for anything else.
    """
    value = read_string(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise Misconfigured(f"{name} must be 1 or 0, not {value!r}.")


def read_choice(name: str, choices: Collection[str], *, default: str) -> str:
    """Read one of some words, ignoring case. An empty variable means the default.

    Raises Misconfigured for any other value.
    """
    value = read_string(name) or default
    found = next((choice for choice in choices if choice.lower() == value.strip().lower()), None)
    if found is None:
        *first, last = choices
        raise Misconfigured(f"{name} must be {', '.join(first)} or {last}, not {value!r}.")
    return found


def read_positive_int(name: str, default: int) -> int:
    """Read an integer above zero, up to 2**63 - 1; raises Misconfigured for any other value."""
    value = read_string(name)
    if not value:
        return default
    digits = len(str(LARGEST))
    # Python refuses to parse thousands of digits.
    is_short = value.isascii() and value.isdigit() and len(value) <= digits
    if not is_short or not 0 < int(value) <= LARGEST:
        raise Misconfigured(
            f"{name} must be a positive whole number of at most {LARGEST}, not {value[:digits]!r}."
        )
    return int(value)


def read_days(name: str, default: int) -> int:
    """Read a whole number of days, up to 100 years; raises Misconfigured for any other value."""
    return read_units(name, default, unit="days", most=LONGEST.days)


def read_hours(name: str, default: int) -> int:
    """Read a whole number of hours, up to 100 years; raises Misconfigured for any other value."""
    return read_units(name, default, unit="hours", most=LONGEST.days * 24)


def read_units(name: str, default: int, *, unit: str, most: int) -> int:
    """Read a whole number of `unit` up to `most`; raises Misconfigured for any other value."""
    number = read_positive_int(name, default)
    if number > most:
        raise Misconfigured(f"{name} must be at most {most} {unit} (100 years), not {number}.")
    return number


def read_percentage(name: str) -> float | None:
    """Read a percentage of 0 to 100 as a share; None if it is not set.

    Raises Misconfigured for any other value.
    """
    value = read_string(name)
    if not value:
        return None
    try:
        percent = float(value)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise Misconfigured(f"{name} must be a percentage of 0 to 100, not {value!r}.")
    return percent / 100


def read_seconds(name: str, default: float) -> float:
    """Read a duration in seconds above zero, up to 100 years.

    Raises Misconfigured for any other value.
    """
    value = read_string(name)
    if not value:
        return default
    try:
        duration = float(value)
    except ValueError:
        duration = 0.0
    if not 0 < duration < float("inf"):
        raise Misconfigured(f"{name} must be a number of seconds above 0, not {value!r}.")
    most = LONGEST.total_seconds()
    if duration > most:
        raise Misconfigured(f"{name} must be at most {most:.0f} seconds (100 years), not {value}.")
    return duration


def extract_host_port(url: str) -> str:
    """Return `host:port` of an http(s) URL, always with the port.

    Raises Misconfigured for any other URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if not port or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Misconfigured(f"{url!r} is not an http:// or https:// address.")
    return f"{parts.hostname}:{port}"


def read_https_url(name: str) -> str:
    """Read an https:// URL without its trailing slash; empty if it is not set.

    Raises Misconfigured for any other URL.
    """
    value = read_string(name).rstrip("/")
    parts = urlsplit(value)
    if value and (parts.scheme != "https" or not parts.hostname):
        raise Misconfigured(f"{name} must be an https:// address.")
    return value


def read_public_url(name: str) -> str:
    """Read the https:// URL of this instance: a scheme, a host and optionally a port.

    Returns an empty string if it is not set. Raises Misconfigured for any other URL, including one
    with a path: cookies, links and the content security policy apply to a whole host.
    """
    value = read_string(name).strip().rstrip("/")
    if not value:
        return ""
    parts = parse_url(value)
    if parts is None or parts.scheme != "https" or not parts.hostname:
        raise Misconfigured(f"{name} must be an https:// address.")
    if parts.path or "?" in value or "#" in value or parts.username is not None:
        raise Misconfigured(
            f"{name} must be only a host, such as https://chat.example.org. A path, a query "
            "or a user is not supported: give Palimpsest its own host name."
        )
    origin = format_origin(parts)
    if not origin:
        raise Misconfigured(f"{name}: {parts.netloc!r} is not a host name.")
    return origin


def parse_url(value: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is malformed or its port is not 1 to 65535."""
    try:
        parts = urlsplit(value)
        return None if parts.port == 0 else parts
    except ValueError:
        return None


def format_origin(parts: SplitResult) -> str:
    """Return an origin as browsers send it: lower case, ASCII, without the default port.

    Empty if it has no host name or address.
    """
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    else:
        with suppress(UnicodeError):
            host = host.encode("idna").decode("ascii")
        if not HOST.fullmatch(host):
            return ""
    usual = {"https": 443, "http": 80}.get(parts.scheme)
    port = "" if parts.port in {None, usual} else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def read_proxy_count(name: str) -> int:
    """Read the number of proxies in front of this server.

    Each of them appends to X-Forwarded-For. "off" and 0 mean none, "on" means one. Raises
    Misconfigured for any other value.
    """
    value = read_string(name)
    if value.isascii() and value.isdigit() and int(value) <= MOST_PROXIES:
        return int(value)
    try:
        return int(read_bool(name))
    except Misconfigured:
        raise Misconfigured(
            f"{name} must be the number of proxies in front, 0 to {MOST_PROXIES}, not {value!r}."
        ) from None


def read_list(name: str, default: str = "") -> list[str]:
    """Read a comma-separated list, ignoring empty items. Raises the errors of `read_string`."""
    return [item.strip() for item in read_string(name, default).split(",") if item.strip()]


def read_command(name: str) -> str:
    """Read a command line; empty if not set. Raises the errors of `check_command`."""
    line = read_string(name)
    if line:
        check_command(line, place=name)
    return line


def check_command(line: str, *, place: str) -> None:
    """Raise Misconfigured for a command line that is empty or has an unbalanced quote.

    `place`: the name of the setting, and of the command in it.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise Misconfigured(
            f"{place} needs a command line with balanced quotes and escapes: {error}."
        ) from None
    if not words or not words[0]:
        raise Misconfigured(f"{place} needs a command line. It is empty.")


def read_commands(name: str) -> dict[str, str]:
    """Read command lines by name as a JSON object.

    Raises Misconfigured for any other value, and for a line that cannot be run.
    """
    try:
        found = json.loads(read_string(name) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(line, str) for line in found.values()):
        raise Misconfigured(
            f'{name} needs a JSON object of command lines by name, such as {{"files": "mcp-files '
            '/srv/files"}.'
        )
    for command, line in found.items():
        check_command(line, place=f"The command {command!r} in {name}")
    return found


def read_networks(name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Read a list of IP addresses and networks, such as `10.0.0.0/8`.

    Raises Misconfigured for any other value.
    """
    try:
        return [ipaddress.ip_network(item) for item in read_list(name)]
    except ValueError as error:
        raise Misconfigured(
            f"{name} needs addresses or networks such as 10.0.0.0/8: {error}."
        ) from None


def read_origins(name: str) -> list[str]:
    """Read a list of origins, such as `https://example.org` or `http://127.0.0.1:3000`.

    Raises Misconfigured for any other value.
    """
    found = read_list(name)
    for origin in found:
        parts = parse_url(origin)
        if parts is None or parts.scheme not in {"http", "https"} or origin != format_origin(parts):
            raise Misconfigured(
                f"{name} needs origins as browsers send them, such as https://example.org: lower "
                f"case, without a path. {origin!r} is not one."
            )
    return found


def read_history_window() -> int:
    """Read HISTORY_WINDOW, or the older name TG_HISTORY_WINDOW if the new one is not set.

    The default is 12. Raises Misconfigured for a value that is not a positive number.
    """
    if read_string("HISTORY_WINDOW"):
        return read_positive_int("HISTORY_WINDOW", 12)
    return read_positive_int("TG_HISTORY_WINDOW", 12)
