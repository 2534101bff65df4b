"""The memory of a process is limited: heaps of the C library, compiled statements, cached words."""

import gc
import os
import platform
import tracemalloc
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.db.utils import ConnectionHandler
from django.test import Client
from django.urls import reverse

from chats.memory.search import archive, words
from chats.models import Branch, Chat
from project import database_url
from tests.faults.programs import python, run
from tests.support.chat_messages import build_message_row
from tests.support.repository import ROOT

# Prints the number of heaps after twelve threads have allocated memory at the same time.
COUNT_HEAPS = """
import ctypes, os, threading
def count_heaps(*_arguments):
    together = threading.Barrier(12)
    def allocate():
        held = [bytearray(2000) for _ in range(100)]
        together.wait()
    threads = [threading.Thread(target=allocate) for _ in range(12)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    path = os.environ["PALIMPSEST_DATA"] + "/heaps.xml"
    output = ctypes.c_void_p(library.fopen(path.encode(), b"w"))
    library.malloc_info(0, output)
    library.fclose(output)
    print(open(path).read().count("<heap nr="))
"""
PROCESSES = {
    "alone": "count_heaps()",
    "web": """
from django.core.management import call_command
from project.management.commands import web
web.refuse_newer_database = lambda: None
web.Server.run = count_heaps
call_command("web", port=0)
""",
    "worker": """
import project.celery
from celery.signals import worker_init
worker_init.send(sender=None)
count_heaps()
""",
}


def count_heaps(folder: Path, process: str, **env: str) -> int:
    """The number of heaps of the C library in a process of the product with many threads."""
    program = f"import django; django.setup()\n{COUNT_HEAPS}\n{PROCESSES[process]}"
    settings = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PALIMPSEST_DATA": str(folder),
        "DJANGO_SETTINGS_MODULE": "project.settings",
        **env,
    }
    return int(run(python("-c", program), env=settings).splitlines()[-1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have one heap")
@pytest.mark.parametrize("process", ["web", "worker"])
def test_threads_share_two_heaps(tmp_path: Path, process: str) -> None:
    assert count_heaps(tmp_path, process) <= 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries have one heap")
def test_the_environment_may_set_another_number_of_heaps(tmp_path: Path) -> None:
    assert count_heaps(tmp_path, "alone") > 5
    assert count_heaps(tmp_path, "web", MALLOC_ARENA_MAX="5") == 5


@pytest.mark.django_db
def test_a_connection_keeps_a_limited_number_of_compiled_statements(tmp_path: Path) -> None:
    settings = {"default": database_url.build_sqlite_settings(tmp_path / "some.sqlite3")}
    with closing(ConnectionHandler(settings)["default"]) as connection:
        before = count_statements()
        for number in range(300):
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT {number}")
        assert 10 < count_statements() - before <= 64


def count_statements() -> int:
    """The compiled statements of all SQLite connections of this process, also of unused ones."""
    gc.collect()
    return sum(type(each).__name__ == "Statement" for each in gc.get_objects())


@pytest.mark.parametrize(
    "runs",
    [
        [f"{n} a{n} {n}\u0301" for n in range(999)],
        # Clauses of Han, and words of Hangul, Thai and Arabic: many pieces each, and no stem.
        [chr(0x4E00 + n) + chr(0x5E00 + n) + chr(0x6E00 + n) for n in range(999)],
        [chr(first + n) * 2 + chr(first) for first in (0xAC00, 0x0E01, 0x0621) for n in range(20)],
    ],
    ids=["numbers", "clauses", "pieces"],
)
def test_runs_without_a_stem_do_not_fill_the_cache_of_words(runs: list[str]) -> None:
    words.list_search_stems("order")
    before = words._read_once.cache_info().currsize  # the cache is the subject
    stems = words.list_search_stems("order " + " ".join(runs))
    assert len(stems) > len(runs)
    assert words._read_once.cache_info().currsize == before  # as above


def add_numbered_messages(chat: Chat, *, now: datetime) -> None:
    """Eight messages at the end of the chat with sixty numbers each, indexed for the search."""
    branch = Branch.objects.get(chat=chat, parent=None)
    for seq in range(branch.last_seq + 1, branch.last_seq + 9):
        numbers = " ".join(str(seq * 1_000_000 + number) for number in range(60))
        row = build_message_row(branch, seq, now=now)
        row.parts = [{"type": "text", "text": f"order {numbers}"}]
        row.save(force_insert=True)
    branch.last_seq += 8
    branch.save()
    archive.index_branch(branch)


def open_pages(client: Client, chat: Chat) -> int:
    """Open the pages that people use most; return their number."""
    addresses = [
        reverse("chats:archive"),
        reverse("chats:chat", args=[chat.pk]),
        reverse("chats:search") + "?q=order",
        reverse("chats:settings"),
    ]
    for address in addresses:
        assert client.get(address).status_code == 200
    return len(addresses)


def test_pages_of_growing_chats_leave_no_memory_behind(
    alice: User, chat: Chat, now: datetime
) -> None:
    client = Client()
    client.force_login(alice)
    for _ in range(2):
        add_numbered_messages(chat, now=now)
        open_pages(client, chat)
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        pages = 0
        for _ in range(4):
            add_numbered_messages(chat, now=now)
            pages += open_pages(client, chat)
        gc.collect()
        grown = (tracemalloc.get_traced_memory()[0] - before) / pages
    finally:
        tracemalloc.stop()
    assert grown < 8_000, f"{grown:.0f} bytes for each page"
