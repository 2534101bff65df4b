"""How much of what a question needs the search in the archive finds, on recorded conversations.

`python -m tests.load.recall FOLDER`: every `NAME.qa.jsonl` beside a `NAME.jsonl`. Each conversation
is stored, covered by a summary, and asked all its questions through `chats.memory.search`, on a
database of its own. Prints recall@10 and @20: the share of each question's evidence among the first
messages found. Questions without evidence or without an answer are left out.
"""

import json
import os
import sys
import tempfile
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any

UNANSWERABLE = {"adversarial", "abstention"}


def main(folder: Path) -> None:
    """Store, ask, print."""
    with tempfile.TemporaryDirectory() as data:
        os.environ["PALIMPSEST_DATA"] = data
        os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        shares: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for questions in sorted(folder.glob("*.qa.jsonl")):
            family = questions.name.partition("-")[0]
            shares[family] += asked(questions)
        for family, found in shares.items():
            ten, twenty = (100 * sum(share) / len(found) for share in zip(*found, strict=True))
            print(f"{family}: {len(found)} questions, recall@10 {ten:.1f} %, @20 {twenty:.1f} %")  # noqa: T201


def asked(questions: Path) -> list[tuple[float, float]]:
    """Recall@10 and @20 of each question of a conversation."""
    from chats.memory import archive
    from chats.memory.search import search

    branch, places = stored(questions.with_name(questions.name.replace(".qa.", ".")))
    archive.index(branch)
    found = []
    for question in lines(questions):
        evidence = [places[one] for one in question["evidence"] if one in places]
        if not evidence or question["category"] in UNANSWERABLE:
            continue
        rows = search(branch, question=question["question"], most=20).rows
        seqs = [row.seq for row in rows]
        found.append(tuple(sum(e in seqs[:k] for e in evidence) / len(evidence) for k in (10, 20)))
    return found  # type: ignore[return-value]  # pairs


def stored(file: Path) -> tuple[Any, dict[str, int]]:
    """A recorded conversation as a chat whose every message is covered; the seqs by recorded id."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    from chats.actions import lifecycle
    from chats.models import Branch, Compaction, Message
    from contextpolicy.models import EffectivePolicy

    owner, _ = User.objects.get_or_create(username="recall")
    chat = lifecycle.create_chat(owner=owner, now=timezone.now())
    branch = Branch.objects.get(chat=chat)
    said = [line for line in lines(file) if line["role"] in {"user", "assistant"}]
    places = {line["id"]: seq for seq, line in enumerate(said, start=1)}
    Message.objects.bulk_create(
        Message(
            branch=branch,
            seq=seq,
            accepted=seq,
            role=line["role"],
            parts=[{"type": "text", "text": line["content"] or ""}],
            speaker={"name": line["name"]} if line.get("name") else None,
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
    return branch, places


def lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
