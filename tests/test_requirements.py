"""The requirements table rejects unknown ids and claims without requests to the role's pages."""

import re
from pathlib import Path

import pytest
from django.test import Client

from tests.requirements_plugin import Claim, behind, faults, known, people, through_doors


def whole() -> dict[str, list[Claim]]:
    """Return claims without errors."""
    return {
        name: [Claim("tests/a.py", "" if person == "developer" else person) for person in asking]
        for name, asking in people().items()
    }


def test_claims_of_known_ids_are_fine() -> None:
    assert faults(whole()) == []


def test_an_unknown_id_is_a_fault() -> None:
    found = faults({**whole(), "S9.9": [Claim("tests/a.py")]})
    assert len(found) == 1
    assert "S9.9 is no requirement" in found[0]


def test_a_landed_id_needs_a_test_for_each_of_its_people() -> None:
    expected = sum(len(asking) for name, asking in people().items() if name in known()[1])
    assert len(faults({})) == expected


@pytest.mark.parametrize(
    "claim",
    [
        Claim("tests/chats/turns/test_state_in_turns.py::test_a"),
        Claim("tests/engine/test_engine_state.py::test_b", by="admin"),
        Claim("tests/browser/test_state.py::test_c", by="user"),
    ],
)
def test_another_way_in_does_not_count_for_an_administrator(claim: Claim) -> None:
    others = [Claim("tests/browser/test_state.py", by="user"), Claim("tests/b.py", by="integrator")]
    found = faults({**whole(), "S2.5": [claim, *others]})
    assert found == ["S2.5 is called landed and no test holds it for the admin"]


def test_a_door_of_somebody_who_did_not_ask_is_a_fault() -> None:
    found = faults({**whole(), "S4.6": [*whole()["S4.6"], Claim("tests/a.py", by="admin")]})
    assert found == ["S4.6 was not asked for by admin: tests/a.py"]


def test_each_person_has_a_door() -> None:
    address = {"user": "/chats/1/", "admin": "/admin/", "integrator": "/api/v1/chats"}
    for person in address:
        assert {other for other in address if behind(address[other], person)} == {person}
    assert behind("/admin/contextpolicy/auditevent/", "auditor")


def test_every_case_of_the_study_of_policies_and_audits_has_a_test() -> None:
    files = Path(__file__).parent.rglob("test_*.py")
    found = re.findall(r"policy_case\((\d+)\)", "".join(map(Path.read_text, files)))
    assert {int(number) for number in found} == set(range(1, 28))


@pytest.mark.django_db
def test_a_test_that_stays_outside_its_door_fails(client: Client) -> None:
    with through_doors({"user"}):
        client.get("/login/")
    with pytest.raises(AssertionError, match="the user's door"), through_doors({"user"}):
        client.get("/admin/")
