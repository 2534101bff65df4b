"""Imports policies and strategies.

Strategies are in the format of other systems, policies in the product's own format. A strategy is
`{"id", "contextStrategy": {"type": "plugin", "pluginId", "config"}}` or its inner object alone, as
JSON. It becomes a new policy, which is not assigned to anyone yet, or the next version of an
existing one. Everything is validated before anything is written. The settings `context.history` of
a product that stores chats as UI messages are supported too.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, cast

from django.db import IntegrityError, transaction
from django.utils.text import slugify
from django.utils.translation import gettext

from contextpolicy import policy_refusals, publish
from contextpolicy.engine.policy.policy import Problem, get_strategy_defaults
from contextpolicy.import_json import parse_import_json
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.plugins import FOREIGN_KEYS, MalformedImport, parse_imported_strategy
from contextpolicy.policy_skills import (
    create_missing_skills,
    export_policy_skills,
    list_missing_skills,
)
from contextpolicy.wording import join_items

# Maximum characters of a policy's description.
LONGEST_POLICY_DESCRIPTION = 2_000
# The prefix of history settings for chats stored as a list of UI messages.
HISTORY = "context.history."


HISTORY_KEYS: Mapping[str, str] = {
    "keepLastMessages": "keep_last_messages",
    "maxInputTokensApprox": "token_budget",
    "archiveOnCompact": "archive",
}


# The key and value that identify an exported policy, and its other keys.
OWN_FORM, OWN_VERSION = "palimpsest_policy", 1


OWN_KEYS: Mapping[str, type] = {
    OWN_FORM: int,
    "slug": str,
    "name": str,
    "description": str,
    "values": dict,
    "locks": list,
    "skills": list,
    "skills_left_out": list,
    "skills_left_out_help": str,
}


# Paths of the REST API that would conflict with a policy's slug.
RESERVED = frozenset(
    {"assignments", "effective", "import", "lint", "preview", "recommended-drafts"}
)


# The fields of a strategy and its config; an import replaces all of them.
OF_A_STRATEGY = frozenset({"strategy", "strategy_config", *FOREIGN_KEYS.values()})


class ReservedName(Exception):
    """The slug of the new policy is reserved for a URL of the API."""

    code = "reserved_name"

    def __init__(self, *, slug: str) -> None:
        super().__init__(
            gettext("The name {slug!r} is reserved. Choose another name.").format(slug=slug)
        )


class PolicyExists(Exception):
    """A policy with this slug already exists."""

    code = "policy_exists"

    def __init__(self, *, slug: str) -> None:
        super().__init__(
            gettext(
                "A policy {slug!r} already exists. Import into that policy, or choose another name."
            ).format(slug=slug)
        )


def import_strategy(
    *,
    text: str,
    actor: str,
    now: datetime,
    into: ContextPolicy | None = None,
    name: str = "",
    writes_skills: bool = False,
) -> ContextPolicy:
    """Import a strategy as a new policy, or as the next version of `into`.

    A new policy is named `name`, or after the form's `id` if `name` is empty. An existing policy
    keeps its locks and the values that do not belong to a strategy. The export of a policy is
    imported with all its values (`import_policy`). `writes_skills`: the importer may create skills
    of the instance. Raises `MalformedImport`, `ReservedName`, `PolicyExists`, `PolicyNameTaken`,
    `PolicySkillsRefused`, `PolicyProblems` and `PolicyChangedMeanwhile`.
    """
    form = parse_import_json(text)
    if is_exported_policy(form):
        own = cast(Mapping[str, Any], form)
        given = own.get("skills", [])
        with transaction.atomic():
            create_missing_skills(
                given if isinstance(given, list) else [],
                is_allowed=writes_skills,
                actor=actor,
                now=now,
            )
            return import_policy(own, into=into, name=name, actor=actor, now=now)
    said = convert_history_form(form, into=into) or parse_imported_strategy(form)
    called = name.strip() or get_form_id(form)
    note = f"Imported: {called or said['strategy']}"[:500]
    if into is None:
        return create_imported_policy(called, values=said, note=note, actor=actor, now=now)
    current = get_latest_version(into)
    before = current.values if current else {}
    values = {key: value for key, value in before.items() if key not in OF_A_STRATEGY} | said
    locks = [key for key in (current.locks if current else ()) if key in values]
    publish.create_policy_version(
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


def convert_history_form(form: object, *, into: ContextPolicy | None) -> dict[str, Any]:
    """Convert `context.history` to policy fields; empty if the form has none.

    Keys may be nested or dotted. The reserved tokens are added to the token budget, because a
    policy's budget includes the reply. Raises `MalformedImport`.
    """
    values = extract_history_values(form)
    if not values:
        return {}
    found = [
        gettext("context.history has the unknown key {key!r}. Remove it.").format(key=key)
        for key in sorted(set(values) - set(HISTORY_KEYS))
    ]
    for key in HISTORY_KEYS.keys() & values.keys():
        value, wanted = values[key], bool if key == "archiveOnCompact" else int
        if type(value) is not wanted or (wanted is int and value < 1):
            sentence = gettext("context.history.{key} must be a whole number above 0.")
            if wanted is bool:
                sentence = gettext("context.history.{key} must be true or false.")
            found.append(sentence.format(key=key))
    if found:
        raise MalformedImport(" ".join(sorted(found)), reason="wrong_keys")
    fields: dict[str, Any] = {HISTORY_KEYS[key]: value for key, value in values.items()}
    if "token_budget" in fields:
        # The imported limit applies to the prompt alone, the policy's budget to prompt and reply.
        latest = get_latest_version(into) if into else None
        before = latest.values if latest else {}
        usual = get_strategy_defaults("dynamic_summary").reserve_tokens
        fields["reserve_tokens"] = before.get("reserve_tokens", usual)
        fields["token_budget"] += fields["reserve_tokens"]
    return {"strategy": "dynamic_summary", **fields}


def extract_history_values(form: object) -> dict[str, Any]:
    """Return the form's values under `context.history`, by the last part of their keys.

    Raises `MalformedImport` if a value is given both nested and dotted.
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
            gettext(
                "context.history.{keys} is set twice, nested and dotted. Keep one of them."
            ).format(keys=join_items(twice)),
            reason="key_twice",
        )
    return {**nested, **found}


def is_exported_policy(form: object) -> bool:
    """Return True if the form has the format of `export_policy`."""
    return isinstance(form, Mapping) and OWN_FORM in form


def export_policy(policy: ContextPolicy, *, with_skills: bool) -> dict[str, Any]:
    """Return a policy and its newest version in the format that `import_strategy` accepts.

    `with_skills`: include the policy's skills, because the reader may read skills of the instance.
    """
    version = policy.newest
    chosen = version.values.get("skills", ()) if version else ()
    return {
        OWN_FORM: OWN_VERSION,
        "slug": policy.slug,
        "name": policy.name,
        "description": policy.description,
        "values": version.values if version else {},
        "locks": version.locks if version else [],
        **export_policy_skills(chosen, with_texts=with_skills),
    }


def import_policy(
    form: Mapping[str, Any],
    *,
    into: ContextPolicy | None,
    name: str,
    actor: str,
    now: datetime,
) -> ContextPolicy:
    """Import an exported policy with values and locks, as a new one or the next version of `into`.

    A new policy also gets the description.

    Raises `PolicyProblems` with all problems at once, `MalformedImport`, `ReservedName`,
    `PolicyExists`, `PolicyNameTaken` and `PolicyChangedMeanwhile`.
    """
    found = find_form_problems(form)
    if found:
        raise policy_refusals.PolicyProblems(found)
    called = name.strip() or str(form.get("name", "")).strip() or str(form.get("slug", ""))
    values, locks = form.get("values", {}), form.get("locks", [])
    note = f"Imported: {called}"[:500]
    if into is None:
        return create_imported_policy(
            called,
            values=values,
            locks=locks,
            note=note,
            actor=actor,
            now=now,
            # A name without Latin letters and digits gives no slug.
            slug=slugify(called)[:60] or slugify(str(form.get("slug", "")))[:60],
            description=str(form.get("description", ""))[:LONGEST_POLICY_DESCRIPTION],
        )
    current = get_latest_version(into)
    publish.create_policy_version(
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


def get_latest_version(policy: ContextPolicy) -> PolicyVersion | None:
    """Return the version with the highest number: a draft or the active one.

    None if the policy has no version.
    """
    newest = policy.newest
    return newest if newest and newest.activated_at is None else policy.current


def find_form_problems(form: Mapping[str, Any]) -> list[Problem]:
    found = [
        Problem(
            "unknown_key",
            (key,),
            gettext("A policy has no key {key!r}. Remove it.").format(key=key),
        )
        for key in form
        if key not in OWN_KEYS
    ]
    if form[OWN_FORM] != OWN_VERSION:
        sentence = gettext(
            "{key} is {found!r}; this server supports {version}. Export the policy from a server "
            "of the same version."
        ).format(key=OWN_FORM, found=form[OWN_FORM], version=OWN_VERSION)
        found.append(Problem("unknown_version", (OWN_FORM,), sentence))
    for key, kind in OWN_KEYS.items():
        if key in form and not isinstance(form[key], kind):
            found.append(Problem("malformed_key", (key,), describe_wrong_type(key, kind)))
    values, locks = form.get("values", {}), form.get("locks", [])
    if isinstance(values, Mapping) and isinstance(locks, list):
        missing = list_missing_skills(form.get("skills_left_out", []))
        found += [build_left_out_problem(slug) for slug in missing]
        values = remove_skills(values, missing)
        found += find_policy_errors(values, locks=[str(lock) for lock in locks])
    return found


def build_left_out_problem(slug: str) -> Problem:
    """Return the problem of a skill that an exported policy names but does not contain."""
    sentence = gettext(
        "The exported policy does not contain the skill {slug}, and it does not exist here. Export "
        "the skill where the policy comes from, import it under Skills, then import the policy "
        "again."
    )
    return Problem("skill_left_out", ("skills",), sentence.format(slug=slug))


def remove_skills(values: Mapping[str, Any], slugs: Collection[str]) -> Mapping[str, Any]:
    """Return the values of a policy without the given skills."""
    chosen = values.get("skills")
    if not slugs or not isinstance(chosen, list):
        return values
    return {**values, "skills": [slug for slug in chosen if slug not in slugs]}


def describe_wrong_type(key: str, kind: type) -> str:
    """Return a sentence about the type that a key of an exported policy must have."""
    sentences = {
        str: gettext("{key} must be a string."),
        dict: gettext("{key} must be an object."),
        list: gettext("{key} must be a list."),
        int: gettext("{key} must be a number."),
    }
    return sentences[kind].format(key=key)


def create_imported_policy(
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
    """Create a policy with that name; without `slug`, the slug is derived from the name.

    Raises `MalformedImport`, `ReservedName`, `PolicyExists`, `policy_refusals.PolicyNameTaken` and
    `PolicyProblems`.
    """
    slug = slug or slugify(name)[:60]
    if not slug:
        raise MalformedImport(
            gettext(
                "The new policy needs a name. Enter one, or an ID with at least one letter "
                "from a to z or digit."
            ),
            reason="no_name",
        )
    check_slug_free(slug)
    publish.check_name_free(name[:200])
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


def check_slug_free(slug: str) -> None:
    """Raise `ReservedName` or `PolicyExists` if no new policy can have this slug, ignoring case."""
    if slug.lower() in RESERVED:
        raise ReservedName(slug=slug)
    same = ContextPolicy.objects.filter(slug__iexact=slug).values_list("slug", flat=True).first()
    if same is not None:
        raise PolicyExists(slug=same)


def get_form_id(form: object) -> str:
    """Return the form's `id`, or an empty string."""
    given = form.get("id") if isinstance(form, Mapping) else None
    return given.strip() if isinstance(given, str) else ""
