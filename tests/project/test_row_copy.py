"""The checksum of a row is the same for the numbers that SQLite and PostgreSQL return."""

import json
from decimal import Decimal

import pytest

from contextpolicy.ledger import normalise_event_data
from project.operations.row_copy import Checksum

WHOLE = [3.0, -0.0, 2.0**53, 2.0**60, 1e16, 1.2345678901234568e16, 1e22, 1e23, -1e23, 1.7e308]


def read_from_postgresql(number: float) -> object:
    """Return a number as PostgreSQL returns it from JSON: its digits without an exponent."""
    return json.loads(format(Decimal(json.dumps(number)), "f"))


@pytest.mark.parametrize("number", [*WHOLE, 0.45, 1e-7, 12345.678, 2**53 + 1, 10**23])
def test_a_number_has_one_checksum_and_one_form(number: float) -> None:
    # SQLite stores the text, so it returns the number unchanged.
    stored, moved = json.loads(json.dumps(number)), read_from_postgresql(number)
    rows = [Checksum().add([({"n": [value]},)]) for value in (stored, moved)]
    assert rows[0] == rows[1]
    assert normalise_event_data({"n": stored}) == normalise_event_data({"n": moved})


def test_close_integers_differ() -> None:
    assert Checksum().add([(2**53,)]) != Checksum().add([(2**53 + 1,)])


@pytest.mark.parametrize("number", [0.0, 3.0, -7.0, 1e15, 2.0**53, 1e16, 1e22])
def test_numbers_of_stored_events_keep_their_form(number: float) -> None:
    assert normalise_event_data({"n": number}) == {"n": int(number)}
