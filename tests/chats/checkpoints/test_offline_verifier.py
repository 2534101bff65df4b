"""The offline verifier: proofs, unbroken chains without proof, and unreadable input."""

import ast
import base64
import hashlib
import json
import sys
import uuid
from collections.abc import Callable
from datetime import datetime
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from chats.checkpoints import files, signing, upkeep, verify_ledger
from contextpolicy import ledger
from contextpolicy.audit import export
from contextpolicy.audit.search import parse_search_line

pytestmark = pytest.mark.django_db
CHATS = [uuid.UUID(int=number) for number in range(1, 5)]
Rows = list[dict[str, Any]]


class Kit:
    """The files of an auditor in a folder. Runs the program on them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.key = files.list_public_keys()[0][1]
        head = signing.find_newest_checkpoint()
        assert head is not None
        self.note = head.note
        self.write("log.txt", "".join(files.list_log_lines(head.origin)))
        self.write("kept.txt", head.note)
        self.write("chain.tlog-proof", files.build_chain_proof(f"chat:{CHATS[2]}")[0])
        self.export("")

    def write(self, name: str, text: str | bytes) -> None:
        """Write one of the files."""
        data = text if isinstance(text, bytes) else text.encode()
        (self.folder / name).write_bytes(data)

    def read(self, name: str) -> bytes:
        """Read one of the files."""
        return (self.folder / name).read_bytes()

    def export(self, search: str) -> None:
        """Export the ledger as the product does."""
        begun = export.ExportUnderWay(parse_search_line(search), "jsonl", "user:1")
        pieces = export.stream_ledger_export(begun, checkpoint=upkeep.load_last_note())
        self.write("ledger.jsonl", b"".join(pieces))

    def run(self, *options: str, key: str | None = None) -> tuple[int, str]:
        """Run the program. Options name files of the folder."""
        paths = [o if o.startswith("--") else str(self.folder / o) for o in options]
        whole = [str(self.folder / "ledger.jsonl"), "--key", self.key if key is None else key]
        code = verify_ledger.main([*whole, *paths])
        return code, self.capsys.readouterr().out

    def forge(
        self,
        change: Callable[[Rows], None],
        *,
        foot: Callable[[dict[str, Any]], None] | None = None,
    ) -> Rows:
        """Change the rows and rewrite the last line with matching hashes."""
        *lines, last = self.read("ledger.jsonl").splitlines()
        rows = [json.loads(line) for line in lines]
        change(rows)
        told = json.loads(last)
        body = b"".join(line_of(row) + b"\n" for row in rows)
        told |= {"rows": len(rows), "sha256": hashlib.sha256(body).hexdigest()}
        told["chains"] = len({row["scope"] for row in rows})
        if foot:
            foot(told)
        self.write("ledger.jsonl", body + json.dumps(told, sort_keys=True).encode() + b"\n")
        return rows

    def forge_log(self, rows: Rows) -> None:
        """Write a log that matches the chains of these rows."""
        hashes: dict[str, tuple[int, str]] = {}
        for row in rows:
            before = hashes.get(row["scope"], (0, ledger.GENESIS))[1].encode()
            digest = hashlib.sha256(before + line_of(row)).hexdigest()
            hashes[row["scope"]] = (row["seq"], digest)
        entries = [f"chain\n{s}\n{n}\n{h}\n".encode() for s, (n, h) in hashes.items()]
        self.write("log.txt", b"".join(base64.b64encode(entry) + b"\n" for entry in entries))


def line_of(row: dict[str, Any]) -> bytes:
    """Return the hashed form of a row."""
    return json.dumps(row, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture
def kit(tmp_path: Path, now: datetime, capsys: pytest.CaptureFixture[str]) -> Kit:
    """Four signed chats and the signed chain of the instance."""
    for number, chat in enumerate(CHATS):
        for _ in range(number + 1):
            ledger.record_event("chat.created", actor="user:1", now=now, chat_id=chat)
    signing.sign_checkpoint(actor="system", now=now, reason="command")
    signing.sign_checkpoint(actor="system", now=now, reason="command")
    return Kit(tmp_path, capsys)


def changed(rows: Rows) -> None:
    """Change the actor who created the first chat."""
    next(row for row in rows if row["scope"].startswith("chat:"))["actor"] = "user:9"


def dropped(rows: Rows) -> None:
    """Remove one chat."""
    rows[:] = [row for row in rows if row["scope"] != f"chat:{CHATS[1]}"]


def added(rows: Rows) -> None:
    """Add a chat that never existed."""
    scope = f"chat:{uuid.UUID(int=99)}"
    rows.append({**rows[0], "scope": scope, "seq": 1})


def cut(rows: Rows) -> None:
    """Remove the last row of the last chat."""
    rows.remove([row for row in rows if row["scope"] == f"chat:{CHATS[3]}"][-1])


def nothing(rows: Rows) -> None:
    """Change no row."""


def without_checkpoint(foot: dict[str, Any]) -> None:
    """Remove the checkpoint from the last line."""
    foot["checkpoint"] = ""


def test_an_export_with_its_log_is_proven_and_says_what_was_compared(
    kit: Kit, now: datetime
) -> None:
    code, said = kit.run("--log", "log.txt")
    assert code == 0, said
    assert said.endswith("Everything is verified.\n")
    assert "the checkpoint of the export: signed by the key" in said
    assert "the log matches the root of the checkpoint of the export" in said
    assert "5 of 5 chains match the signed entries" in said
    assert kit.run("--log", "log.txt", "--checkpoint", "kept.txt")[0] == 0

    ledger.record_event("chat.titled", actor="worker", now=now, chat_id=CHATS[0])
    kit.export("")
    code, said = kit.run("--log", "log.txt")
    assert code == 0
    assert "Rows newer than the last signed row, not yet proven: 1." in said


@pytest.mark.parametrize("options", [(), ("--checkpoint", "kept.txt")], ids=["alone", "kept"])
@pytest.mark.parametrize("change", [nothing, changed, dropped, added, cut])
def test_without_the_log_nothing_is_proven(
    change: Callable[[Rows], None], options: tuple[str, ...], kit: Kit
) -> None:
    kit.forge(change)
    code, said = kit.run(*options)
    assert code == 2
    assert "Everything is verified" not in said
    assert "NOT PROVEN: no row of the export was compared with a signed checkpoint" in said


@pytest.mark.parametrize("change", [changed, dropped, cut])
def test_with_the_log_a_change_is_broken(change: Callable[[Rows], None], kit: Kit) -> None:
    kit.forge(change)
    code, said = kit.run("--log", "log.txt")
    assert code == 1
    assert "BROKEN: chat:" in said


def test_a_proof_of_one_chain_shows_no_missing_chains(kit: Kit) -> None:
    kit.forge(
        lambda rows: rows.__setitem__(
            slice(None), [row for row in rows if row["scope"] == f"chat:{CHATS[2]}"]
        )
    )
    code, said = kit.run("--proof", "chain.tlog-proof")
    assert (code, verify_ledger.CHAINS_NOT_COUNTED in said) == (2, True)
    assert kit.run("--proof", "chain.tlog-proof", "--log", "log.txt")[0] == 1
    # An export that is named as one of this chain is proven.
    kit.export(f"chat:{CHATS[2]}")
    assert kit.run("--proof", "chain.tlog-proof")[0] == 0


def test_a_chain_that_no_entry_signs_is_named(kit: Kit) -> None:
    kit.forge(added)
    code, said = kit.run("--log", "log.txt")
    assert code == 2
    assert f"NOT PROVEN: chat:{uuid.UUID(int=99)}: not compared with anything signed" in said


@pytest.mark.parametrize("change", [nothing, changed, dropped])
def test_a_log_without_a_signed_checkpoint_proves_nothing(
    change: Callable[[Rows], None], kit: Kit
) -> None:
    kit.forge_log(kit.forge(change, foot=without_checkpoint))
    code, said = kit.run("--log", "log.txt")
    assert code == 2
    assert verify_ledger.LOG_NOT_COMPARED in said
    # A checkpoint from another source shows that the log was replaced.
    code, said = kit.run("--log", "log.txt", "--checkpoint", "kept.txt")
    assert code != 0
    assert "Everything is verified" not in said


def test_a_log_made_anew_does_not_fit_the_signed_checkpoint(kit: Kit) -> None:
    rows = kit.forge(changed)
    kit.forge_log([*rows])
    code, _said = kit.run("--log", "log.txt")
    assert code != 0
    padded = kit.read("log.txt") * 8
    kit.write("log.txt", padded)
    code, said = kit.run("--log", "log.txt")
    assert code == 1
    assert "the log does not match the checkpoint of the export" in said


@pytest.mark.parametrize("behind", [b"{}\n", b"x", b'{"scope":"chat:x","seq":1}\n'])
def test_lines_behind_the_last_one_are_told(behind: bytes, kit: Kit) -> None:
    kit.write("ledger.jsonl", kit.read("ledger.jsonl") + behind)
    code, said = kit.run("--log", "log.txt")
    assert code == 1
    assert verify_ledger.LINES_AFTER_END in said
    kit.export("")
    kit.write("ledger.jsonl", kit.read("ledger.jsonl") + b"\n\n")
    assert kit.run("--log", "log.txt")[0] == 0


def test_an_export_of_one_chain_is_proven_by_log_or_proof_and_says_that_it_is_one(
    kit: Kit,
) -> None:
    kit.export(f"chat:{CHATS[2]}")
    for options in (("--log", "log.txt"), ("--proof", "chain.tlog-proof")):
        code, said = kit.run(*options)
        assert code == 0, said
        assert f"the export contains chat:{CHATS[2]} alone" in said
    kit.forge(changed)
    for options in (("--log", "log.txt"), ("--proof", "chain.tlog-proof")):
        assert kit.run(*options)[0] == 1
    # The proof of one chain does not prove another chain.
    kit.export(f"chat:{CHATS[1]}")
    assert kit.run("--proof", "chain.tlog-proof")[0] == 1


@pytest.mark.parametrize(
    "search", ["event:chat.created", "actor:user:1", "at:2020-01-01..2030-01-01"]
)
def test_an_export_of_a_search_is_never_a_proof_of_the_whole(search: str, kit: Kit) -> None:
    kit.export(search)
    code, said = kit.run("--log", "log.txt")
    assert code in {0, 2}
    assert "BROKEN" not in said

    kit.export("")
    kit.forge(dropped, foot=lambda told: told.update(search=search))
    code, said = kit.run("--log", "log.txt")
    assert code == 2
    assert "the export is a search result without 1 chains of the log" in said


def test_a_search_for_one_chain_hides_no_other_rows(kit: Kit) -> None:
    kit.forge(nothing, foot=lambda told: told.update(search=f"chat:{CHATS[0]}"))
    assert kit.run("--log", "log.txt")[0] == 1


def test_a_newer_checkpoint_shows_that_the_export_is_older(kit: Kit, now: datetime) -> None:
    ledger.record_event("chat.titled", actor="worker", now=now, chat_id=CHATS[0])
    newer = signing.sign_checkpoint(actor="system", now=now, reason="command")
    kit.write("log.txt", "".join(files.list_log_lines(newer.origin)))
    assert kit.run("--log", "log.txt")[0] == 0
    kit.write("kept.txt", newer.note)
    code, said = kit.run("--log", "log.txt", "--checkpoint", "kept.txt")
    assert code == 2
    assert verify_ledger.EXPORT_OLDER in said


def test_a_signature_of_another_key_is_broken(kit: Kit) -> None:
    name = kit.key.split("+", 1)[0]
    other = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    whole = b"\x01" + other
    digest = hashlib.sha256(f"{name}\n".encode() + whole).hexdigest()[:8]
    key = f"{name}+{digest}+{base64.b64encode(whole).decode()}"
    code, said = kit.run("--log", "log.txt", key=key)
    assert code == 1
    assert verify_ledger.NOT_SIGNED in said


JUNK = [b"", b"\xff\xfe\x00", b"null\n", b"[1]\n", b"1" * 5000 + b"\n", b"[" * 100_000, b"\x00"]
EXPORTS = [
    *JUNK,
    b'{"scope": 1, "seq": 1}\n',
    b'{"scope": "chat:x", "seq": "1"}\n',
    b'{"scope": "chat:x", "seq": true}\n',
    b'{"scope": "chat:\\ud800", "seq": 1}\n',
    b'{"export": "x", "rows": 0, "sha256": "", "search": 7, "checkpoint": ""}\n',
    b'{"export": "x", "checkpoint": "a\\nb\\nc\\n\\n"}\n',
    b'{"export": "x", "checkpoint": ["a"]}\n',
]
LOGS = [
    b"\xff",
    b"!!!\n",
    b"\n",
    base64.b64encode(b"chain\nx\n") + b"\n",
    base64.b64encode(b"chain\nx\nmany\nh\n") + b"\n",
    base64.b64encode(b"chain\nx\n" + b"1" * 5000 + b"\nh\n") + b"\n",
    base64.b64encode(b"\xff\xfe") + b"\n",
]
NOTES = [
    b"",
    b"\xff",
    b"a\nb\nc\n\n",
    b"a\n-1\nAAAA\n\n",
    b"a\n1\n!!\n\n",
    b"a\n" + b"9" * 5000 + b"\nAAAA\n\n",
    b"a\n1\n\n",
]
PROOFS = [
    *NOTES,
    b"c2sp.org/tlog-proof@v1\n\na\n1\nAAAA\n\n",
    b"c2sp.org/tlog-proof@v1\nindex x\n\na\n1\nAAAA\n\n",
    b"c2sp.org/tlog-proof@v1\nindex 0\n!!\n\na\n1\nAAAA\n\n",
    b"other\nindex 0\n\na\n1\nAAAA\n\n",
]
MALFORMED = [
    *(("ledger.jsonl", each) for each in EXPORTS),
    *(("log.txt", each) for each in LOGS),
    *(("kept.txt", each) for each in NOTES),
    *(("chain.tlog-proof", each) for each in PROOFS),
]


@pytest.mark.parametrize(("name", "data"), MALFORMED, ids=[str(n) for n in range(len(MALFORMED))])
def test_what_cannot_be_read_is_said_in_a_sentence_and_proves_nothing(
    name: str, data: bytes, kit: Kit
) -> None:
    kit.write(name, data)
    code, said = kit.run(
        "--log", "log.txt", "--checkpoint", "kept.txt", "--proof", "chain.tlog-proof"
    )
    assert code in {1, 2}
    assert "Everything is verified" not in said
    assert said.rstrip().endswith(".")


@pytest.mark.parametrize(
    "key", ["", "x", "a+b+c", "a+0000000g+AAAA", "name+12345678+!!", "\x00", "a" * 5000]
)
def test_a_key_that_is_none_is_said(key: str, kit: Kit) -> None:
    code, said = kit.run("--log", "log.txt", key=key)
    assert (code, said.count("\n")) == (2, 1)
    assert "Verification is not possible: the key is not a verifier key" in said


@pytest.mark.parametrize(
    ("option", "file"),
    [("--log", "the log"), ("--checkpoint", "the saved checkpoint"), ("--proof", "the proof")],
)
def test_a_file_that_is_not_there_is_said(option: str, file: str, kit: Kit) -> None:
    for name in ("absent", "."):
        code, said = kit.run(option, name)
        assert (code, said.count("\n")) == (2, 1)
        assert verify_ledger.FILE_NOT_READ.format(name=file, reason="") in said


def test_names_from_a_file_cannot_write_to_the_terminal(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(rows: Rows) -> None:
        rows.append({**rows[0], "scope": "chat:\x1b[2Jevil\ud800é", "seq": 1})

    kit.forge(named)
    out = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(out, encoding="ascii"))
    assert verify_ledger.main([str(kit.folder / "ledger.jsonl"), "--key", kit.key]) == 2
    sys.stdout.flush()
    assert b"\x1b" not in out.getvalue()
    assert b"evil" in out.getvalue()


def test_it_runs_on_the_oldest_python_that_it_names() -> None:
    source = Path(verify_ledger.__file__).read_text(encoding="utf-8")
    assert "Python 3.9 or newer" in source
    tree = ast.parse(source, feature_version=(3, 9))
    # Python 3.9 rejects `int | None`, unless annotations are not evaluated.
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert imports[0].module == "__future__"
    assert [name.name for name in imports[0].names] == ["annotations"]
