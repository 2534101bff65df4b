"""Every change of settings that affect others creates an audit event, in code and admin."""

import ast
from collections.abc import Iterator
from datetime import datetime

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import RequestFactory

from chats.admin.site import PalimpsestAdminSite
from contextpolicy import ledger, roles
from contextpolicy.models import AuditEvent, ContextPolicy
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.contextpolicy.people import person
from tests.support.repository import ROOT

# Rows that decide about other people's prompts, rights, keys and records.
GOVERNING = frozenset(
    {"ContextPolicy", "PolicyVersion", "PolicyAssignment", "ModelSpec", "ProviderAccount", "ApiKey"}
    | {"LegalHold", "Skill", "SkillFile", "Webhook", "Evaluation", "BlastRadius", "User", "Group"}
)
WRITES = frozenset({"create", "update", "delete", "get_or_create", "update_or_create"}) | {
    "bulk_create",
    "bulk_update",
    "set",
}
# Functions that write an event for their callers.
RECORDS = ("record_event(", "record_key_event(", "record_webhook_event(", "_tell(")
# Writes without an event, and why.
SILENT = {
    "end_rest": "when the next delivery is due",
    "seed_demo_model": "what every new instance has",
    "seed_roles": "what every new instance has",
    "store_file_changes": "save_skill, its only caller, writes the event",
    "store_learned_options": "the model server is the source of the values",
    "update_last_use": "its callers write an event for the first use of a day",
}


def writers() -> Iterator[tuple[str, str]]:
    """Each function that writes such a row: its name and its code."""
    for room in ("chats", "contextpolicy", "project"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if "migrations" not in path.parts:
                yield from writers_in(ast.parse(path.read_text(encoding="utf-8")))


def writers_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The writers of one file."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and any(map(is_write, ast.walk(function))):
            yield function.name, ast.unparse(function)


def is_write(node: ast.AST) -> bool:
    """Return True if a call writes such a row, or a membership."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    name, _, rest = ast.unparse(node.func.value).partition(".objects")
    is_membership = name.endswith((".groups", ".user_set"))
    is_row = name in GOVERNING and (not rest or rest[0] in ".(")
    return node.func.attr in WRITES and (is_membership or is_row)


@pytest.mark.policy_case(21)
def test_every_function_that_writes_what_governs_records_it() -> None:
    found = list(writers())
    assert len(found) > 15
    silent = {name for name, code in found if not any(how in code for how in RECORDS)}
    assert silent == set(SILENT)


@pytest.mark.policy_case(21)
@pytest.mark.django_db
def test_no_form_of_the_administration_saves_past_the_ledger() -> None:
    admin.autodiscover()
    request = RequestFactory().get("/admin/")
    request.user = User.objects.create_superuser("root")
    sites = [site for site in admin.sites.all_sites if isinstance(site, PalimpsestAdminSite)]
    forms = [one for site in sites for one in site._registry.values()]
    assert len(forms) > 10
    for form in forms:
        kind = type(form)
        writes = form.has_add_permission(request) or form.has_change_permission(request)
        assert not writes or kind.save_model is not admin.ModelAdmin.save_model, kind
        deletes = form.has_delete_permission(request)
        assert not deletes or kind.delete_model is not admin.ModelAdmin.delete_model, kind
        assert "delete_selected" not in form.get_actions(request), kind
        assert not form.list_editable, kind


@pytest.mark.policy_case(20)
@pytest.mark.django_db
def test_an_account_and_a_group_that_go_change_no_row_and_are_named_by_numbers_alone(
    now: datetime,
) -> None:
    gone = person("anna.berg", roles.AUDITOR)
    gone.email = "anna.berg@example.org"
    roles.save_person(person=gone, changed=["email"], actor=f"user:{gone.pk}", now=now)
    policy = create_policy(slug="p", name="P", values={}, actor=f"user:{gone.pk}", now=now)
    assign_policy(policy=policy, level="user", user=gone, actor=f"user:{gone.pk}", now=now)
    before = list(AuditEvent.objects.order_by("pk").values_list("hash", flat=True))

    Group.objects.get(name=roles.AUDITOR).user_set.clear()
    gone.delete()

    assert list(ledger.find_ledger_breaks()) == []
    lines = [ledger.format_event_line(event) for event in AuditEvent.objects.order_by("pk")]
    assert list(AuditEvent.objects.order_by("pk").values_list("hash", flat=True)) == before
    assert not [line for line in lines if "anna" in str(line)]
    assert ContextPolicy.objects.filter(pk=policy.pk).exists()
