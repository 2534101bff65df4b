"""Helpers for forms in the browser."""

import re

from tests.browser.desk import Person

PASSWORD = "a password of some length"


def only_expected(person: Person) -> None:
    """Remove console messages about the scripted failures."""
    made = re.compile("Failed to (load|fetch)|net::|Response Status Error")
    person.complaints[:] = [said for said in person.complaints if not made.search(said)]
