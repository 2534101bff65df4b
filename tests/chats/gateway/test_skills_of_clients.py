"""Skills for clients of /v1, which bring their own tools: texts of mode always, without files."""

from datetime import datetime

import pytest

from chats.models import Receipt
from contextpolicy.models import ModelSpec, Skill
from contextpolicy.skills import save_skill
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import GatewayClient, user

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("mode", ["always", "on_demand"])
def test_a_client_gets_no_tool_and_no_names_of_files(
    program: GatewayClient, set_policy: SetPolicy, now: datetime, mode: str
) -> None:
    ModelSpec.objects.update(supports_tools=True)
    skill = Skill(slug="mail", name="Mail", description="Mails.", text="Be short.", mode=mode)
    save_skill(skill=skill, actor="system", now=now, files={"reference.md": "One"})
    set_policy(skills=["mail"])
    assert program.ask([user("Hello")]).status == 200
    request = program.requests[-1]
    said = "\n".join(wire.content for wire in request.messages)
    assert ("Be short." in said) is (mode == "always")
    assert "reference.md" not in said
    assert request.tools == ()
    notes = [note for note in Receipt.objects.get().notes if note.startswith("skill")]
    assert notes == [{"always": "skill_files:left_out", "on_demand": "skills:left_out"}[mode]]
