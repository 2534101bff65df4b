"""Keys created by the first start: concurrent processes share one complete key."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from project import data_folder

# Starts a few threads that request a key at the same moment, in each of a few folders.
ASK = """
import sys, threading
from pathlib import Path
from project import data_folder
for folder in sorted(Path(sys.argv[1]).iterdir()):
    found, begin = set(), threading.Barrier(8)
    def ask():
        begin.wait()
        found.add(data_folder.load_or_create_key(folder / "secret_key", make="token"))
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(folder.name, *found)
"""


@pytest.mark.parametrize("make", ["token", "fernet"])
def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path, make: str) -> None:
    file = tmp_path / "key"
    key = data_folder.load_or_create_key(file, make=make)
    assert len(key) > 40
    assert data_folder.load_or_create_key(file, make=make) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_processes_that_start_at_once_have_the_same_key(tmp_path: Path) -> None:
    folders = [tmp_path / f"{number:02}" for number in range(40)]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", ASK, str(tmp_path)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0].splitlines() for process in both]
    assert said[0] == said[1]
    assert [len(line.split()) for line in said[0]] == [2] * len(folders)


def test_what_an_interrupted_start_left_behind_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    key = data_folder.load_or_create_key(file, make="token")
    assert len(key) > 40
    assert data_folder.load_or_create_key(file, make="token") == key
