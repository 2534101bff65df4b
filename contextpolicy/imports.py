"""Imports strategies in the form that other systems write: the one way they become a policy.

A form is `{"id", "contextStrategy": {"type": "plugin", "pluginId", "config"}}` or its inner object
alone, as JSON. It becomes a new policy, which applies nowhere yet, or the next version of one that
exists. Nothing is written before all of it was judged. The settings `context.history` of a product
that keeps chats as UI messages are read too.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, cast

from django.db import IntegrityError
from django.utils.text import slugify

from contextpolicy import publish
from contextpolicy.engine.policy import Problem, defaults_for
from contextpolicy.linter.errors import check
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.plugins import FOREIGN_KEYS, MalformedImport, imported_strategy

# The characters of the JSON: a strategy with its config is a page or two.
LONGEST_IMPORT = 100_000
# The settings of chats that are kept as a list of UI messages.
HISTORY = "context.history."
HISTORY_KEYS: Mapping[str, str] = {
    "keepLastMessages": "keep_last_messages",
    "maxInputTokensApprox": "token_budget",
    "archiveOnCompact": "archive",
}
# The key and its value by which a whole policy is known, and what else it has.
OWN_FORM, OWN_VERSION = "palimpsest_policy", 1
OWN_KEYS: Mapping[str, type] = {
    OWN_FORM: int,
    "slug": str,
    "name": str,
    "description": str,
    "values": dict,
    "locks": list,
}
CANNOT_BE_STORED = "The JSON holds something that cannot be stored. Write plain text and numbers."
# The REST API has addresses of these names where a policy's slug stands.
RESERVED = frozenset(
    {"assignments", "effective", "import", "lint", "preview", "recommended-drafts"}
)
# The fields of a strategy and its config: an import replaces all of them.
OF_A_STRATEGY = frozenset({"strategy", "strategy_config", *FOREIGN_KEYS.values()})


class ReservedName(Exception):
    """A new policy would be called as an address below `/policies` is."""

    code = "reserved_name"

    def __init__(self, *, slug: str) -> None:
        super().__init__(f"No policy can be called {slug!r}. Give it another name.")


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
    `ReservedName`, `PolicyExists`, `publish.PolicyProblems` and `publish.PolicyChangedMeanwhile`.
    """
    form = read(text)
    if is_own(form):
        return import_policy(
            cast(Mapping[str, Any], form), into=into, name=name, actor=actor, now=now
        )
    said = of_history(form, into=into) or imported_strategy(form)
    called = name.strip() or identity(form)
    note = f"Imported: {called or said['strategy']}"[:500]
    if into is None:
        return new_policy(called, values=said, note=note, actor=actor, now=now)
    current = seen(into)
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
        may_wait=True,
    )
    return into


def of_history(form: object, *, into: ContextPolicy | None) -> dict[str, Any]:
    """Return the fields that `context.history` stands for; empty where the form has none.

    The keys are read nested or with dots. Raises `MalformedImport`.
    """
    told = history_in(form)
    if not told:
        return {}
    found = [
        f"context.history has the key {key!r}, which nothing stands for. Remove it."
        for key in sorted(set(told) - set(HISTORY_KEYS))
    ]
    for key in HISTORY_KEYS.keys() & told.keys():
        value, wanted = told[key], bool if key == "archiveOnCompact" else int
        if type(value) is not wanted or (wanted is int and value < 1):
            kind = "true or false" if wanted is bool else "a whole number above 0"
            found.append(f"context.history.{key} must be {kind}.")
    if found:
        raise MalformedImport(" ".join(sorted(found)))
    fields: dict[str, Any] = {HISTORY_KEYS[key]: value for key, value in told.items()}
    if "token_budget" in fields:
        # There the limit of the prompt alone, here that of prompt and reply.
        before = into.current.values if into and into.current else {}
        usual = defaults_for("dynamic_summary").reserve_tokens
        fields["reserve_tokens"] = before.get("reserve_tokens", usual)
        fields["token_budget"] += fields["reserve_tokens"]
    return {"strategy": "dynamic_summary", **fields}


def history_in(form: object) -> dict[str, Any]:
    """Return what a form says under `context.history`, by the last part of its key.

    Raises `MalformedImport` for a value that is there nested and with dots.
    """
    if not isinstance(form, Mapping):
        return {}
    found = {
        key.removeprefix(HISTORY): value for key, value in form.items() if key.startswith(HISTORY)
    }
    context = form.get("context")
    history = context.get("history") if isinstance(context, Mapping) else None
    nested = dict(history) if isinstance(history, Mapping) else {}
    if twice := sorted(nested.keys() & found.keys()):
        raise MalformedImport(
            f"The form has context.history.{', '.join(twice)} twice, nested and with dots. Keep "
            "the value that you mean."
        )
    return {**nested, **found}


def is_own(form: object) -> bool:
    """Tell whether a form is a policy as `exported` writes it."""
    return isinstance(form, Mapping) and OWN_FORM in form


def exported(policy: ContextPolicy) -> dict[str, Any]:
    """Return a policy with its newest version as a form that `import_strategy` reads."""
    version = policy.newest
    return {
        OWN_FORM: OWN_VERSION,
        "slug": policy.slug,
        "name": policy.name,
        "description": policy.description,
        "values": version.values if version else {},
        "locks": version.locks if version else [],
    }


def import_policy(
    form: Mapping[str, Any],
    *,
    into: ContextPolicy | None,
    name: str,
    actor: str,
    now: datetime,
) -> ContextPolicy:
    """Make a policy of a whole form: a new one, or the next version of `into`, values and locks.

    Raises `publish.PolicyProblems` with all that is wrong at once, `MalformedImport`,
    `ReservedName`, `PolicyExists` and `publish.PolicyChangedMeanwhile`.
    """
    found = form_problems(form)
    if found:
        raise publish.PolicyProblems(found)
    called = name.strip() or str(form.get("name", "")).strip() or str(form.get("slug", ""))
    values, locks = form.get("values", {}), form.get("locks", [])
    note = f"Imported: {called}"[:500]
    if into is None:
        return new_policy(called, values=values, locks=locks, note=note, actor=actor, now=now)
    current = seen(into)
    publish.new_version(
        policy=into,
        values=values,
        locks=locks,
        note=note,
        actor=actor,
        now=now,
        based_on=current.number if current else None,
        may_wait=True,
    )
    return into


def seen(policy: ContextPolicy) -> PolicyVersion | None:
    """Return the version that the next one follows: a draft, or the one that was in force."""
    newest = policy.newest
    return newest if newest and newest.activated_at is None else policy.current


def form_problems(form: Mapping[str, Any]) -> list[Problem]:
    """List everything that is wrong with a whole form."""
    found = [
        Problem("unknown_key", (key,), f"A policy has no key {key!r}. Remove it.")
        for key in form
        if key not in OWN_KEYS
    ]
    if form[OWN_FORM] != OWN_VERSION:
        sentence = (
            f"{OWN_FORM} is {form[OWN_FORM]!r}; this server reads {OWN_VERSION}. Export the policy "
            "from a server of the same age."
        )
        found.append(Problem("unknown_version", (OWN_FORM,), sentence))
    for key, kind in OWN_KEYS.items():
        if key in form and not isinstance(form[key], kind):
            wanted = {str: "a text", dict: "an object", list: "a list", int: "a number"}[kind]
            found.append(Problem("malformed_key", (key,), f"{key} must be {wanted}."))
    values, locks = form.get("values", {}), form.get("locks", [])
    if isinstance(values, Mapping) and isinstance(locks, list):
        found += check(values, locks=[str(lock) for lock in locks])
    return found


def new_policy(
    name: str,
    *,
    values: Mapping[str, Any],
    note: str,
    actor: str,
    now: datetime,
    locks: Collection[str] = (),
    slug: str = "",
    description: str = "",
    is_draft: bool = False,
) -> ContextPolicy:
    """Create a policy of that name; its slug is made of the name unless it is given.

    Raises `MalformedImport`, `ReservedName`, `PolicyExists` and `publish.PolicyProblems`.
    """
    slug = slug or slugify(name)[:60]
    if not slug:
        raise MalformedImport("The new policy needs a name: give one, or an id with letters in it.")
    if slug in RESERVED:
        raise ReservedName(slug=slug)
    try:
        return publish.create_policy(
            slug=slug,
            name=name[:200],
            description=description,
            values=values,
            locks=locks,
            note=note,
            actor=actor,
            now=now,
            is_draft=is_draft,
        )
    except IntegrityError as error:
        if ContextPolicy.objects.filter(slug=slug).exists():
            raise PolicyExists(slug=slug) from error
        raise


def read(text: str) -> object:
    """Read the form from its JSON. Raises `MalformedImport`."""
    if len(text) > LONGEST_IMPORT:
        raise MalformedImport(
            f"The text has {len(text):,} characters; {LONGEST_IMPORT:,} are allowed."
        )
    try:
        form = json.loads(text, object_pairs_hook=without_doubles)
        # No database would take half of a surrogate pair, or an infinite number.
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        sentence = f"This is no JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        raise MalformedImport(sentence) from error
    except MalformedImport:
        raise
    except (ValueError, RecursionError) as error:
        raise MalformedImport(CANNOT_BE_STORED) from error
    if any("\0" in found for found in texts_in(form)):
        raise MalformedImport(CANNOT_BE_STORED)
    return form


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs. Raises `MalformedImport` if it names a value twice."""
    counts = Counter(name for name, _ in pairs)
    twice = [repr(name) for name, count in counts.items() if count > 1]
    if twice:
        raise MalformedImport(
            f"The JSON names {', '.join(twice)} twice in one object. Keep the value that you mean."
        )
    return dict(pairs)


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
