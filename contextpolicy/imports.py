"""Imports strategies in the form that other systems write: the one way they become a policy.

A form is `{"id", "contextStrategy": {"type": "plugin", "pluginId", "config"}}` or its inner object
alone, as JSON. It becomes a new policy, which applies nowhere yet, or the next version of one that
exists. Nothing is written before all of it was judged.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.utils.text import slugify

from contextpolicy import publish
from contextpolicy.models import ContextPolicy
from contextpolicy.plugins import FOREIGN_KEYS, MalformedImport, imported_strategy

# The characters of the JSON: a strategy with its config is a page or two.
LONGEST_IMPORT = 100_000
CANNOT_BE_STORED = "The JSON holds something that cannot be stored. Write plain text and numbers."
# The fields of a strategy and its config: an import replaces all of them.
OF_A_STRATEGY = frozenset({"strategy", "strategy_config", *FOREIGN_KEYS.values()})


class PolicyExists(Exception):
    """A new policy would get the name of one that is there."""

    code = "policy_exists"

    def __init__(self, *, slug: str) -> None:
        super().__init__(
            f"There is a policy {slug!r} already. Import into it, or give the new one another name."
        )


def import_strategy(
    *, text: str, actor: str, now: datetime, into: ContextPolicy | None = None, name: str = ""
) -> ContextPolicy:
    """Make a policy of a strategy in import form: a new one, or the next version of `into`.

    A new one is called by its `name`, else by the form's `id`. Of an existing one the values that
    are no part of a strategy stay as they are, and so do its locks. Raises `MalformedImport`,
    `PolicyExists`, `publish.PolicyProblems` and `publish.PolicyChangedMeanwhile`.
    """
    form = read(text)
    said = imported_strategy(form)
    called = name.strip() or identity(form)
    note = f"Imported: {called or said['strategy']}"[:500]
    if into is None:
        return new_policy(called, values=said, note=note, actor=actor, now=now)
    current = into.current
    before = current.values if current else {}
    values = {key: value for key, value in before.items() if key not in OF_A_STRATEGY} | said
    locks = [key for key in (current.locks if current else ()) if key in values]
    publish.new_version(
        policy=into,
        values=values,
        locks=locks,
        note=note,
        actor=actor,
        now=now,
        based_on=current.number if current else None,
    )
    return into


def new_policy(
    name: str, *, values: Mapping[str, Any], note: str, actor: str, now: datetime
) -> ContextPolicy:
    """Create a policy of that name. Raises `MalformedImport` and `PolicyExists`."""
    slug = slugify(name)[:60]
    if not slug:
        raise MalformedImport("The new policy needs a name: give one, or an id with letters in it.")
    if ContextPolicy.objects.filter(slug=slug).exists():
        raise PolicyExists(slug=slug)
    return publish.create_policy(
        slug=slug, name=name[:200], values=values, note=note, actor=actor, now=now
    )


def read(text: str) -> object:
    """Read the form from its JSON. Raises `MalformedImport`."""
    if len(text) > LONGEST_IMPORT:
        raise MalformedImport(
            f"The text has {len(text):,} characters; {LONGEST_IMPORT:,} are allowed."
        )
    try:
        form = json.loads(text)
        # No database would take half of a surrogate pair, or an infinite number.
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        sentence = f"This is no JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        raise MalformedImport(sentence) from error
    except (ValueError, RecursionError) as error:
        raise MalformedImport(CANNOT_BE_STORED) from error
    if any("\0" in found for found in texts_in(form)):
        raise MalformedImport(CANNOT_BE_STORED)
    return form


def texts_in(value: object) -> Iterator[str]:
    """Yield every text in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)


def identity(form: object) -> str:
    """Return the form's own id; empty where it has none."""
    given = form.get("id") if isinstance(form, Mapping) else None
    return given.strip() if isinstance(given, str) else ""
