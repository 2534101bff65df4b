"""The table of requirements judges claims: an unknown id and a missing test both fail."""

from tests.requirements_plugin import faults, known


def test_an_unknown_id_is_a_fault() -> None:
    assert any("S9.9 is no requirement" in fault for fault in faults({"S9.9": ["a_test"]}))


def test_a_landed_id_without_a_test_is_a_fault() -> None:
    _, landed = known()
    missing = [fault for fault in faults({}) if "no test holds it" in fault]
    assert len(missing) == len(landed)


def test_claims_of_known_ids_are_fine() -> None:
    every, _ = known()
    assert faults({name: ["a_test"] for name in every}) == []
