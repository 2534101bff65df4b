"""Allow-lists of names, and their intersection.

A name `server/*` allows every name that begins with `server/`.
"""

from collections.abc import Collection, Sequence


def is_name_allowed(name: str, allowed: Collection[str]) -> bool:
    """Return True if a list contains this name, or `server/*` for a name `server/…`."""
    server, separator, _ = name.partition("/")
    return name in allowed or (bool(separator) and f"{server}/*" in allowed)


def intersect_allow_lists(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the names that all lists allow, in the order of the lists, each once."""
    names = dict.fromkeys(name for names in lists for name in names)
    return [name for name in names if all(is_name_allowed(name, other) for other in lists)]
