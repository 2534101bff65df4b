"""Measures how much of the evidence for a question the search finds in recorded conversations.

`python -m benchmarks.recall FOLDER` (or `make recall DATA=FOLDER`) reads every `NAME.qa.jsonl` that
has a `NAME.jsonl`. Each conversation is stored as a chat of a new person, indexed, and queried with
all its questions through `chats.memory.search.recall`, on a separate database. The program prints
recall@10 and @20 for each category, conversation and family: the mean share of a question's
evidence among the first messages found, and the shares of questions for which any or all of the
evidence is among them. Questions without evidence or without an answer are left out.

`--archive` uses the archive search of a chat that is fully covered by a summary. `--half even` or
`odd` takes every second conversation. `--set NAME=VALUE` changes a constant of
`chats.memory.search.ranking`. `--vectors ADDRESS --model NAME` adds semantic search with an
embedding model at a URL that ends with `/v1`, as an operator would choose it.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.prepared import create_tables
from chats.compaction import question_embedding

UNANSWERABLE = {"adversarial", "abstention"}
Shares = list[tuple[str, float, float]]


def main(arguments: Sequence[str]) -> None:
    """Store, query, print."""
    given = options().parse_args(arguments)
    with tempfile.TemporaryDirectory() as data:
        os.environ["PALIMPSEST_DATA"] = data
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        if given.vectors:
            os.environ["ALLOWED_PRIVATE_PROVIDERS"] = urlsplit(given.vectors).netloc
        import django

        django.setup()
        create_tables()
        files = sorted(given.folder.glob("*.qa.jsonl"))
        if not files:
            sys.exit(f"{given.folder} has no conversation: no file is called NAME.qa.jsonl.")
        if given.half:
            files = files[given.half == "odd" :: 2]
        stored = [(file, *store(file)) for file in files]
        if given.vectors:
            embed(given.vectors, model=given.model)
        for change in given.set or [""]:
            told(stored, change=change, through_archive=given.archive)


def options() -> argparse.ArgumentParser:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--archive", action="store_true")
    parser.add_argument("--half", choices=["even", "odd"])
    parser.add_argument("--vectors", metavar="ADDRESS")
    parser.add_argument("--model", default="")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE[,NAME=VALUE]")
    return parser


def told(stored: Sequence[Any], *, change: str, through_archive: bool) -> None:
    """Ask every question with changed constants, and print the shares."""
    from chats.memory.search import ranking

    before = {name: getattr(ranking, name) for name in ranking.__dict__ if name.isupper()}
    for pair in change.split(",") if change else ():
        name, _, value = pair.partition("=")
        setattr(ranking, name, type(before[name])(float(value)))
    families: dict[str, Shares] = defaultdict(list)
    conversations: dict[str, Shares] = {}
    begun, asked_for = time.process_time(), 0
    for file, branch, places in stored:
        found = asked(file, branch=branch, places=places, through_archive=through_archive)
        families[file.name.partition("-")[0]] += found
        conversations[file.name.removesuffix(".qa.jsonl")] = found
        asked_for += len(found)
    took = 1000 * (time.process_time() - begun) / max(asked_for, 1)
    say(f"{change or 'as it is'}: {took:.0f} ms of processor a question")
    for family, shares in families.items():
        say(f"{family}: {in_words(shares)}")
        say(f"  questions with any of it found: {in_words(counted(shares, least=0.001))}")
        say(f"  questions with all of it found: {in_words(counted(shares, least=1.0))}")
        for category in sorted({name for name, _, _ in shares}) if not change else ():
            say(f"  {category}: {in_words([each for each in shares if each[0] == category])}")
    for name, shares in conversations.items():
        say(f"{name}: {in_words(shares)}")
    for name, value in before.items():
        setattr(ranking, name, value)


def in_words(shares: Shares) -> str:
    """The number of questions and both means."""
    ten, twenty = (100 * sum(share[at] for share in shares) / len(shares) for at in (1, 2))  # type: ignore[misc]  # numbers
    return f"{len(shares)} questions, recall@10 {ten:.1f} %, @20 {twenty:.1f} %"


def counted(shares: Shares, *, least: float) -> Shares:
    """Replace each share by 1 if it is at least `least`, otherwise by 0."""
    return [(name, float(ten >= least), float(twenty >= least)) for name, ten, twenty in shares]


def asked(file: Path, *, branch: Any, places: dict[str, int], through_archive: bool) -> Shares:
    """Recall@10 and @20 for each question about a conversation, with its category."""
    from django.utils import timezone

    from chats.memory.search.recall import recall_excerpts
    from chats.memory.search.recall_scope import Scope
    from chats.memory.search.search import search_archive

    found: Shares = []
    for question in lines(file):
        evidence = [places[one] for one in question["evidence"] if one in places]
        if not evidence or question["category"] in UNANSWERABLE:
            continue
        text = question["question"]
        if through_archive:
            seqs = [
                row.seq or 0 for row in search_archive(branch, question=text[:500], most=20).rows
            ]
        else:
            owner = branch.chat.owner_id
            look = looked(text, owner_id=owner)
            at = timezone.now()
            result = recall_excerpts(owner, text, scope=Scope(role=""), limit=30, at=at, look=look)
            seqs = [each.seq for each in result.excerpts if each.message_id][:20]
        ten, twenty = (sum(e in seqs[:k] for e in evidence) / len(evidence) for k in (10, 20))
        found.append((question["category"], ten, twenty))
    return found


def embed(address: str, *, model: str) -> None:
    """Choose a model at a URL and embed all texts."""
    from django.db.models.functions import Now
    from django.utils import timezone

    from chats.compaction import embedding
    from chats.memory.search import vectors
    from chats.models import ProviderAccount, TextVector, VectorSpace
    from contextpolicy.models import ModelSpec

    ModelSpec.objects.create(slug="demo", provider="demo", name="demo", is_default=True)
    ProviderAccount.objects.create(slug="near", name="Near", base_url=address)
    ModelSpec.objects.create(slug="near", provider="near", name=model, embeds=True, enabled=False)
    embedding.choose_embedding_model("near", anew=False, actor="system", now=timezone.now())
    begun = time.perf_counter()
    while not VectorSpace.objects.filter(state="serving").exists():
        VectorSpace.objects.update(due_at=Now())
        embedding.continue_embedding_pass(now=timezone.now())
        fault = VectorSpace.objects.get().fault
        if fault:
            raise SystemExit(fault)
    progress = vectors.measure_space_progress(VectorSpace.objects.get())
    say(
        f"{TextVector.objects.count():,} vectors of {progress.texts:,} messages in"
        f" {time.perf_counter() - begun:.0f} s; {progress.missing} messages without one"
    )


def looked(text: str, *, owner_id: int) -> Any:
    """The embedding of a question, or None without a model."""
    from chats.memory.search import meaning
    from chats.memory.search.recall import remove_speaker_names

    by = question_embedding.get_question_embedder()
    if by is None:
        return None
    text = remove_speaker_names(owner_id, text)
    question = asyncio.run(question_embedding.embed_question_text(text, by=by, seconds=30))
    give_up = time.monotonic() + 60
    return partial(
        meaning.compare_question_vector,
        question.vector,
        space_id=question.space_id,
        give_up=give_up,
    )


def store(questions: Path) -> tuple[Any, dict[str, int]]:
    """Store a recorded conversation as a fully covered chat; return seqs by recorded id."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from chats.actions import lifecycle
    from chats.memory.search import archive
    from chats.models import Branch, Compaction, Message
    from contextpolicy.models import EffectivePolicy

    file = questions.with_name(questions.name.replace(".qa.", "."))
    owner = User.objects.create(username=file.stem)
    chat = lifecycle.create_chat(owner=owner, now=timezone.now())
    branch = Branch.objects.select_related("chat").get(chat=chat)
    said = [line for line in lines(file) if line["role"] in {"user", "assistant"}]
    places = {line["id"]: seq for seq, line in enumerate(said, start=1)}
    Message.objects.bulk_create(
        Message(
            branch=branch,
            seq=seq,
            accepted=seq,
            role=line["role"],
            parts=[{"type": "text", "text": line["content"] or ""}],
            speaker=speaker(line),
            created_at=datetime.fromisoformat(line["created_at"]),
        )
        for seq, line in enumerate(said, start=1)
    )
    policy, _ = EffectivePolicy.objects.get_or_create(
        digest="0" * 64, defaults={"values": {}, "sources": {}}
    )
    branch.active_compaction = Compaction.objects.create(
        branch=branch,
        kind="summary",
        status="published",
        text="A summary.",
        from_seq=1,
        to_seq=len(said),
        trigger="tokens",
        effective_policy=policy,
        created_at=timezone.now(),
    )
    branch.last_seq = len(said)
    branch.save()
    archive.index_branch(branch)
    return branch, places


def speaker(line: dict[str, Any]) -> dict[str, str] | None:
    """The speaker of a line in the product's format."""
    name = line.get("name")
    kind = "human" if line["role"] == "user" else "ai"
    return {"roleId": name.casefold(), "roleName": name, "type": kind} if name else None


def lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
