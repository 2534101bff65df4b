"""S2: which role may open which page of the administration.

The table below is the specification.
"""

import uuid
from datetime import datetime

import pytest
from django.contrib.auth.models import Group, User
from django.db.models import CharField, JSONField, Model, TextField
from django.test import Client
from django.urls import reverse
from django.urls.resolvers import URLPattern, URLResolver

from chats.admin.site import site
from chats.models import (
    Agent,
    Branch,
    Chat,
    Compaction,
    DailyCount,
    KeptText,
    Message,
    ProviderAccount,
    Receipt,
    RetentionRun,
    Team,
    TeamVersion,
    Turn,
)
from contextpolicy import roles
from contextpolicy.holds import place_hold
from contextpolicy.ledger import record_event
from contextpolicy.models import (
    AuditEvent,
    BlastRadius,
    ContextPolicy,
    EffectivePolicy,
    Evaluation,
    ModelSpec,
    Skill,
    ToolDefinition,
    ToolServer,
)
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.contextpolicy.people import person, signed_in
from tests.support.role_table import ROLE_TABLE, A, O, P, S, W

pytestmark = pytest.mark.django_db

CANARY = "canary-9f41-what-a-person-wrote"

ROLES = (P, O, A, W, S)

OTHER = {
    "admin:contextpolicy_ledger_verify": {A, S},
    "admin:contextpolicy_ledger_export": {A, S},
    "admin:contextpolicy_ledger_checkpoints": {A, S},
    "admin:contextpolicy_ledger_offline": {A, S},
    "admin:chats_receipt_words": {A, S},
    "admin:contextpolicy_policy_import": {P, S},
    "admin:auth_user_invite": {W, S},
    "admin:contextpolicy_effective_explain": {P, A, S},
    "admin:chats_retention_preview": {P, A, S},
}
# Pages without a GET, or for a pending row, with the roles that may use them.
FORMS = {
    "admin:contextpolicy_policy_recommended": {P, S},
    "admin:chats_compaction_review": {P, S},
}
# The pages of one row each, with its model.
OF_A_ROW = {
    "admin:auth_user_password_change": ("auth_user", {W, S}),
    "admin:contextpolicy_blastradius_count": ("contextpolicy_blastradius", {P, A, S}),
    "admin:contextpolicy_evaluation_compare": ("contextpolicy_evaluation", {P, A, S}),
    "admin:chats_retention_certificate": ("chats_retentionrun", {P, A, S}),
}

# Lists that ignore the lookups of the URL.
OWN_LISTS = {"contextpolicy_auditevent", "chats_dailycount"}
# Lookups that find a text piece by piece.
PROBES = ("startswith", "icontains", "regex", "has_key", "0__text__contains")


@pytest.fixture
def rows(now: datetime) -> dict[str, Model]:
    """One row of each model, with a user's text in every field that can hold some."""
    alice = User.objects.create(username="alice")
    policy = create_policy(slug="p", name="P", values={}, actor="system", now=now)
    effective = EffectivePolicy.objects.create(digest="d", values={}, sources={})
    chat = Chat.objects.create(owner=alice, title=CANARY, created_at=now, updated_at=now)
    branch = Branch.objects.create(chat=chat, created_at=now)
    message = Message.objects.create(
        branch=branch,
        seq=1,
        accepted=1,
        role="user",
        parts=[{"type": "text", "text": CANARY}],
        created_at=now,
    )
    turn = Turn.objects.create(
        branch=branch,
        accepted=2,
        trigger=message,
        queued_at=now,
        partial_text=CANARY,
        partial_reasoning=CANARY,
    )
    receipt = Receipt.objects.create(
        turn=turn,
        attempt=1,
        step=1,
        effective_policy=effective,
        model_name="m",
        segments=[["question", str(message.pk), 1, 9, None, ""]],
        left_out=[],
        budget={},
        prompt_tokens=9,
        prompt_sha256="0" * 64,
        last_seq=1,
        created_at=now,
    )
    compaction = Compaction.objects.create(
        branch=branch,
        kind="summary",
        status="published",
        from_seq=1,
        to_seq=1,
        text=CANARY,
        sections=[{"title": CANARY, "bullets": [{"text": CANARY, "sources": [1]}]}],
        retention={"kept": {"name": [CANARY]}, "lost": {"name": [CANARY]}},
        focus=CANARY,
        remark=CANARY,
        trigger="manual",
        effective_policy=effective,
        created_at=now,
    )
    tool_server = ToolServer.objects.create(slug="t", name="T")
    return {
        "contextpolicy_contextpolicy": policy,
        "contextpolicy_policyassignment": assign_policy(
            policy=policy, level="instance", actor="system", now=now
        ),
        "contextpolicy_effectivepolicy": effective,
        "contextpolicy_auditevent": record_event("chat.created", actor="user:1", now=now),
        "contextpolicy_skill": Skill.objects.create(
            slug="s", name="S", text="Be kind.", updated_at=now
        ),
        "contextpolicy_blastradius": BlastRadius.objects.create(
            policy=policy, digest="0" * 64, base=1, place="instance", started_at=now
        ),
        "contextpolicy_evaluation": Evaluation.objects.create(
            policy=policy, version=policy.versions.get(), base=1, started_at=now, ends_at=now
        ),
        "contextpolicy_modelspec": ModelSpec.objects.create(slug="m", provider="x", name="m"),
        "contextpolicy_toolserver": tool_server,
        "contextpolicy_tooldefinition": ToolDefinition.objects.create(
            server=tool_server, name="t", wire_name="t__t", changed_at=now
        ),
        "chats_provideraccount": ProviderAccount.objects.create(slug="x", name="X", kind="demo"),
        "chats_turn": turn,
        "chats_receipt": receipt,
        "chats_compaction": compaction,
        "chats_team": team_of(alice, now=now),
        "chats_dailycount": DailyCount.objects.create(day=now.date()),
        "chats_retentionrun": RetentionRun.objects.create(
            started_at=now, finished_at=now, is_open=False, digest="0" * 64
        ),
        "chats_kepttext": KeptText.objects.create(
            owner=alice, kind="instructions", text=CANARY, replaced_at=now, replaced_by="user:1"
        ),
        "contextpolicy_legalhold": place_hold(
            level="user", user=alice, case="7", reason="Why", actor="system", now=now
        ),
        "auth_user": alice,
        "auth_group": Group.objects.create(name="Plain"),
    }


def team_of(owner: User, *, now: datetime) -> Team:
    """A team of one person, with texts by that person."""
    team = Team.objects.create(owner=owner, created_at=now)
    version = TeamVersion.objects.create(
        team=team, number=1, name="Team", task=CANARY, created_at=now
    )
    Agent.objects.create(version=version, place=0, role_id="a", name="A", instruction=CANARY)
    team.current = version
    team.save()
    return team


def browser(role: str) -> Client:
    """A browser of a person with this role."""
    if role == S:
        return signed_in(User.objects.create_superuser("root"))
    return signed_in(person("somebody", role))


def opens(client: Client, name: str, *arguments: object) -> bool:
    """Return True if the page can be read. Any status except 200 and 403 is an error."""
    status = client.get(reverse(name, args=arguments)).status_code
    assert status in {200, 403}, f"{name}: {status}"
    return status == 200


def accepts(client: Client, name: str, *arguments: object) -> bool:
    """Return True if a change is allowed: an empty form gets its errors instead of 403."""
    status = client.post(reverse(name, args=arguments), {}).status_code
    assert status in {200, 302, 403}, f"{name}: {status}"
    return status != 403


# One test for all models, because their rows take longer to create than the requests.
@pytest.mark.parametrize("role", ROLES)
def test_S02_each_role_opens_what_the_table_says(role: str, rows: dict[str, Model]) -> None:
    client = browser(role)
    for model, allowed in ROLE_TABLE.items():
        key = rows[model].pk
        read, add, change, delete = (role in roles_of_act for roles_of_act in allowed)

        assert opens(client, f"admin:{model}_changelist") == read, model
        assert opens(client, f"admin:{model}_change", key) == read, model
        assert opens(client, f"admin:{model}_add") == add, model
        assert opens(client, f"admin:{model}_delete", key) == delete, model
        assert accepts(client, f"admin:{model}_add") == add, model
        assert accepts(client, f"admin:{model}_change", key) == change, model


@pytest.mark.parametrize("role", ROLES)
def test_S02_the_pages_beside_the_models_follow_the_table(
    role: str, rows: dict[str, Model]
) -> None:
    client = browser(role)
    for page, allowed in OTHER.items():
        assert opens(client, page) == (role in allowed)
    for page, allowed in FORMS.items():
        # A redirect with permission; 403 or the sign-in page without.
        answer = client.post(reverse(page))
        is_refused = answer.status_code == 403 or "login" in answer.headers.get("Location", "")
        assert is_refused == (role not in allowed), page
    for page, (model, allowed) in OF_A_ROW.items():
        key = rows[model].pk
        assert opens(client, page, key) == (role in allowed)


def test_S02_the_table_names_every_page_of_the_admin() -> None:
    ordinary = {"index", "login", "logout", "password_change", "password_change_done", "jsi18n"}
    ordinary |= {"autocomplete", "app_list", "view_on_site"}
    kinds = ("changelist", "add", "history", "delete", "change")
    told = {f"{model}_{kind}" for model in ROLE_TABLE for kind in kinds}
    told |= {name.removeprefix("admin:") for name in (*OTHER, *FORMS, *OF_A_ROW)}

    def names(found: list[URLPattern | URLResolver]) -> set[str]:
        here = {entry.name for entry in found if isinstance(entry, URLPattern) and entry.name}
        inner = [names(entry.url_patterns) for entry in found if isinstance(entry, URLResolver)]
        return here.union(*inner)

    assert names(site.get_urls()) - ordinary == told
    assert {f"{m._meta.app_label}_{m._meta.model_name}" for m in site._registry} == set(ROLE_TABLE)


@pytest.mark.parametrize("who", ["nobody", "user", "staff without a role"])
def test_S02_without_a_role_nothing_opens(who: str, rows: dict[str, Model]) -> None:
    client = Client()
    if who == "user":
        client = signed_in(person("charlie", roles.USER))
    if who == "staff without a role":
        client = signed_in(User.objects.create(username="charlie", is_staff=True))

    for model in ROLE_TABLE:
        answer = client.get(reverse(f"admin:{model}_changelist"), follow=True)
        if who == "nobody":
            assert answer.redirect_chain[-1][0].startswith("/login/?next=/admin/")
        else:
            assert answer.status_code == 403


@pytest.mark.parametrize("role", ROLES)
def test_S02_no_page_shows_what_a_person_wrote(role: str, rows: dict[str, Model]) -> None:
    client = browser(role)
    pages = [reverse("admin:index")]
    for model, row in rows.items():
        pages.append(reverse(f"admin:{model}_changelist"))
        pages.append(reverse(f"admin:{model}_change", args=[getattr(row, "pk")]))  # noqa: B009 - the same
        pages.append(reverse(f"admin:{model}_history", args=[getattr(row, "pk")]))  # noqa: B009 - the same

    seen = [page for page in pages if CANARY in client.get(page).content.decode()]

    assert seen == []


@pytest.mark.parametrize("action", ["add", "change", "delete"])
def test_S02_not_even_a_superuser_changes_the_ledger(action: str, rows: dict[str, Model]) -> None:
    client = browser(S)
    event = AuditEvent.objects.earliest("id")
    arguments = [] if action == "add" else [event.pk]
    before = list(AuditEvent.objects.values())

    answer = client.post(
        reverse(f"admin:contextpolicy_auditevent_{action}", args=arguments),
        {"actor": "user:9", "post": "yes"},
    )
    in_bulk = client.post(
        reverse("admin:contextpolicy_auditevent_changelist"),
        {"action": "delete_selected", "_selected_action": [event.pk], "post": "yes"},
    )

    assert answer.status_code == 403
    assert in_bulk.status_code == 405
    assert list(AuditEvent.objects.values()) == before


def test_S02_a_policy_cannot_be_deleted_by_anyone(rows: dict[str, Model]) -> None:
    client = browser(S)
    policy = ContextPolicy.objects.get()

    answer = client.post(
        reverse("admin:contextpolicy_contextpolicy_changelist"),
        {"action": "delete_selected", "_selected_action": [policy.pk], "post": "yes"},
    )

    assert answer.status_code in {200, 302}
    assert ContextPolicy.objects.filter(pk=policy.pk).exists()


def test_S02_ids_that_do_not_exist_tell_nothing(rows: dict[str, Model]) -> None:
    client = browser(A)

    answer = client.get(reverse("admin:chats_turn_change", args=[uuid.uuid4()]), follow=True)

    assert answer.status_code == 200
    assert CANARY not in answer.content.decode()


def is_refused(client: Client, model: str, lookup: str) -> bool:
    """Return True if the list refuses this lookup."""
    return client.get(reverse(f"admin:{model}_changelist"), {lookup: "c"}).status_code == 400


# A list refuses a lookup to every role (`FilteredAdmin.lookup_allowed`), so each role that can open
# it tries a share of the fields.
@pytest.mark.parametrize(
    ("role", "model"),
    [
        (role, model)
        for model in sorted(set(ROLE_TABLE) - OWN_LISTS)
        for role in ROLES
        if role in ROLE_TABLE[model][0]
    ],
)
def test_S02_no_list_can_be_searched_for_a_text(role: str, model: str) -> None:
    [kind] = [m for m in site._registry if f"{m._meta.app_label}_{m._meta.model_name}" == model]
    fields = [
        field.name
        for field in kind._meta.get_fields()
        if isinstance(field, CharField | JSONField | TextField)
    ]
    client = browser(role)
    readers = [each for each in ROLES if each in ROLE_TABLE[model][0]]
    share = fields[readers.index(role) :: len(readers)] or fields[:1]

    probes = [f"{name}__{probe}" for name in share for probe in PROBES]
    assert [each for each in probes if not is_refused(client, model, each)] == []


@pytest.mark.parametrize(
    ("model", "lookup"),
    [
        ("chats_compaction", "text__gte"),
        ("chats_compaction", "branch__chat__title__startswith"),
        ("chats_turn", "trigger__parts__icontains"),
        ("chats_kepttext", "text"),
        ("chats_kepttext", "kind__regex"),
        ("chats_team", "current__task__startswith"),
        ("chats_provideraccount", "encrypted_key__gte"),
        ("auth_user", "groups__user__password__startswith"),
    ],
)
def test_S02_no_list_is_filtered_by_what_no_filter_shows(model: str, lookup: str) -> None:
    assert is_refused(browser(S), model, lookup)


def test_S02_every_filter_and_order_that_a_list_offers_works(rows: dict[str, Model]) -> None:
    client, followed = browser(S), 0
    for model in sorted(set(ROLE_TABLE) - OWN_LISTS):
        address = reverse(f"admin:{model}_changelist")
        listed = client.get(address).context["cl"]
        offered = [
            choice["query_string"]
            for spec in listed.filter_specs
            for choice in spec.choices(listed)
        ]
        offered += [f"?o={column}" for column in range(1, len(listed.list_display))]
        for query in offered:
            answer = client.get(f"{address}{query}")
            assert (answer.status_code, CANARY in answer.content.decode()) == (200, False), query
            followed += 1
    assert followed > 100


def test_S02_no_search_or_order_reads_what_a_person_wrote() -> None:
    written = {"parts", "partial_text", "partial_reasoning", "tail", "text", "sections"}
    written |= {"retention", "focus", "remark", "title", "task", "instruction"}
    for model in (Compaction, KeptText, Receipt, Team, Turn):
        listed = site._registry[model]
        used = {str(name) for name in (*listed.search_fields, *listed.list_display)}
        used |= {
            str(getattr(getattr(listed, name, None), "admin_order_field", "")) for name in used
        }
        assert not written & {part for name in used for part in name.lstrip("=^-@").split("__")}
