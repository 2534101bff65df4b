"""An import whose workers are killed resumes, and creates each chat once."""

from pathlib import Path

import pytest

from tests.faults.programs import apart, python, run


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("chats", "kills", "seconds", "more"),
    [
        pytest.param(150, 2, 100, [], id="some"),
        pytest.param(20, 1, 100, ["--apart"], id="in a separate process"),
        pytest.param(2_000, 20, 900, [], id="many", marks=pytest.mark.whole),
    ],
)
def test_every_chat_is_made_once(
    chats: int, kills: int, seconds: int, more: list[str], tmp_path: Path
) -> None:
    options = ["--chats", str(chats), "--kills", str(kills), *more]
    said = run(python("-m", "benchmarks.imports", *options), env=apart(tmp_path), seconds=seconds)
    assert f"{chats} of {chats} chats are here once" in said
