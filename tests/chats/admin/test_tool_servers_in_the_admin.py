"""Tool servers in the administration: connect, read definitions, approve, withdraw."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from chats.prompt.tokenizer import O200kCounter
from chats.tool_servers.servers import read_definitions, request_reading
from contextpolicy.models import AuditEvent, ModelSpec, ToolDefinition, ToolServer
from contextpolicy.roles import AUDITOR, POLICY_ADMIN
from tests.contextpolicy.people import person, signed_in
from tests.fakes.tool_server import FakeToolServer, describe, serving_tools

pytestmark = pytest.mark.django_db
SECRET = "canary-credential-0123456789"
SERVERS = reverse("admin:contextpolicy_toolserver_changelist")
TOOLS = reverse("admin:contextpolicy_tooldefinition_changelist")


@pytest.fixture
def server(settings: Settings) -> Iterator[FakeToolServer]:
    """A server that this instance may call."""
    with serving_tools() as fake:
        settings.ALLOWED_PRIVATE_PROVIDERS = [fake.host]
        yield fake


def form(url: str, **values: str) -> dict[str, str]:
    """Return the form of a server."""
    given = {"name": "Files", "slug": "files", "transport": "http", "url": url, "enabled": "on"}
    return {**given, "command": "", "credential": SECRET, **values}


def connect(operator: Client, server: FakeToolServer) -> ToolServer:
    """Connect a server in the form, and let a worker read it."""
    operator.post(reverse("admin:contextpolicy_toolserver_add"), form(server.url))
    row = ToolServer.objects.get()
    read_definitions(server_id=row.pk, counter=O200kCounter(), now=timezone.now())
    return row


def act(client: Client, action: str, **more: str) -> str:
    """Run an action on all tools and return the page."""
    keys = [str(pk) for pk in ToolDefinition.objects.values_list("pk", flat=True)]
    data = {"action": action, "_selected_action": keys, **more}
    return client.post(TOOLS, data, follow=True).content.decode()


def is_approved(tool: ToolDefinition) -> bool:
    """Return True if the stored tool is approved."""
    tool.refresh_from_db()
    return tool.is_approved


def test_an_operator_connects_a_server_and_approves_its_tools(
    operator: Client, server: FakeToolServer
) -> None:
    row = connect(operator, server)
    assert SECRET not in row.encrypted_key
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"
    tool = ToolDefinition.objects.get()
    assert not is_approved(tool)
    assert "Do echo." in operator.get(TOOLS).content.decode()
    page = operator.get(reverse("admin:contextpolicy_tooldefinition_change", args=[tool.pk]))
    assert "&quot;properties&quot;" in page.content.decode()
    act(operator, "approve")
    assert not is_approved(tool)
    act(operator, "approve", confirmed="yes")
    assert is_approved(tool)
    act(operator, "withdraw")
    assert not is_approved(tool)
    kinds = AuditEvent.objects.filter(type__startswith="tool").order_by("id")
    assert [event.type for event in kinds] == [
        "tool_server.created",
        "tool_server.read",
        "tool.approved",
        "tool.withdrawn",
    ]
    assert SECRET not in str([event.data for event in kinds])
    assert SECRET not in operator.get(SERVERS).content.decode()


def test_a_definition_that_changed_after_the_confirmation_is_not_approved(
    operator: Client, server: FakeToolServer
) -> None:
    row = connect(operator, server)
    act(operator, "approve")
    server.tools = [describe("echo", description="Something else.")]
    request_reading(row, now=timezone.now())
    read_definitions(server_id=row.pk, counter=O200kCounter(), now=timezone.now())
    act(operator, "approve", confirmed="yes")
    assert not ToolDefinition.objects.get().is_approved


def test_another_address_deletes_the_credential_and_the_approvals(
    operator: Client, server: FakeToolServer
) -> None:
    row = connect(operator, server)
    act(operator, "approve")
    act(operator, "approve", confirmed="yes")
    address = reverse("admin:contextpolicy_toolserver_change", args=[row.pk])
    operator.post(address, form(f"{server.url}/other", credential=""))
    row.refresh_from_db()
    assert row.encrypted_key == ""
    assert not ToolDefinition.objects.get().is_approved


def test_refused_addresses_and_commands_store_nothing(
    operator: Client, settings: Settings, server: FakeToolServer
) -> None:
    settings.ALLOWED_PRIVATE_PROVIDERS = []
    settings.TOOL_COMMANDS = {"files": "true"}
    add = reverse("admin:contextpolicy_toolserver_add")
    for given in (
        form(server.url),
        form("http://169.254.169.254/mcp"),
        form("", transport="stdio", command="rm -rf /"),
        form("", transport="stdio", command=""),
    ):
        assert operator.post(add, given).status_code == 200
    assert not ToolServer.objects.exists()
    assert server.headers == []


def test_a_server_that_fails_shows_why(operator: Client, server: FakeToolServer) -> None:
    server.tools = [describe("echo", description="x" * 30_000)]
    row = connect(operator, server)
    row.refresh_from_db()
    assert row.failure
    assert row.asked_at is None
    assert not ToolDefinition.objects.exists()


@pytest.mark.parametrize("role", [POLICY_ADMIN, AUDITOR])
def test_other_roles_read_and_change_nothing(
    operator: Client, server: FakeToolServer, role: str
) -> None:
    connect(operator, server)
    reader = signed_in(person("rita", role))
    assert reader.get(TOOLS).status_code == 200
    assert reader.post(reverse("admin:contextpolicy_toolserver_add"), {}).status_code == 403
    act(reader, "approve", confirmed="yes")
    assert not ToolDefinition.objects.get().is_approved


def test_a_person_without_a_role_sees_nothing(charlie: User) -> None:
    charlie_client = signed_in(charlie)
    assert charlie_client.get(SERVERS).status_code in (302, 403)
    assert charlie_client.get(TOOLS).status_code in (302, 403)


def test_an_operator_chooses_the_tools_of_a_model(
    operator: Client, server: FakeToolServer, demo_model: ModelSpec
) -> None:
    server.tools = [describe("echo"), describe("wipe")]
    connect(operator, server)
    address = reverse("admin:contextpolicy_modelspec_change", args=[demo_model.pk])
    initial = operator.get(address).context["adminform"].form.initial
    sent = {name: value for name, value in initial.items() if value not in (None, False)}
    for chosen, stored in ((["files/echo"], ["files/echo"]), (["none"], []), ([], None)):
        answer = operator.post(address, {**sent, "tools": chosen})
        assert answer.status_code == 302, answer.context["adminform"].form.errors
        demo_model.refresh_from_db()
        assert demo_model.tools == stored
        shown = operator.get(address).context["adminform"].form["tools"].value()
        assert list(shown) == chosen
    changes = AuditEvent.objects.filter(type="model.changed").values_list("data", flat=True)
    found = [data["changes"].get("tools") for data in changes]
    assert {"from": None, "to": ["files/echo"]} in found
    both = operator.post(address, {**sent, "tools": ["none", "files/echo"]})
    assert both.status_code == 200
    demo_model.refresh_from_db()
    assert demo_model.tools is None
