"""The prose check finds phrases on each surface, and files that got worse."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT

PROSE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts/prose.py"), run_name="prose")
# Phrases in pieces, so that the check finds none in this file.
BAD = "This is wh" + "at it was, and no" + "body s" + "tands there."


@pytest.mark.parametrize(
    ("name", "text", "surface"),
    [
        ("chats/one.py", f'"""{BAD}"""', "docstrings"),
        ("chats/one.py", f'SENTENCE = "{BAD}"', "strings"),
        ("chats/one.py", f"# {BAD}\n", "comments"),
        ("tests/one.py", f"# {BAD}\n", "tests"),
        ("templates/one.html", f"<p>{BAD}</p>", "templates"),
        ("docs/one.md", BAD, "documents"),
        ("docs/openapi.yaml", f"a: {{description: '{BAD}'}}", "schema"),
    ],
)
def test_phrases_are_found_on_each_surface(
    name: str, text: str, surface: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    rates, files = PROSE["measure"](tmp_path, [name])
    assert files == {name: 3}
    assert rates[surface] > 100
    assert [line for line in PROSE["complaints"](rates, files, {name: 2}) if name in line]
    assert not list(PROSE["complaints"]({}, files, {name: 3}))
    assert list(PROSE["complaints"](rates, {}, {}))


@pytest.mark.parametrize(
    "text",
    ["Red is warm.", "Stand-ins stand for models.", '<a class="what is">Go</a>'],
)
def test_plain_sentences_have_none(text: str) -> None:
    assert PROSE["find_phrases"](PROSE["TAG"].sub(" ", text)) == []


def test_the_allowed_numbers_name_files_that_exist() -> None:
    allowed = json.loads((ROOT / "scripts/prose.json").read_text("utf-8"))
    assert [name for name in allowed if not (ROOT / name).exists()] == []
