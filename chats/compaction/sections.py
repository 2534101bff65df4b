"""A summary's text as sections of bullets, each with the seqs of its sources."""

import re
from typing import Any

from contextpolicy.engine.prompts import heading_of

HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)$")
BULLET = re.compile(r"^\s*[-*•]\s+(.+)$")
SOURCES = re.compile(r"\[(#\d+(?:\s*,\s*#\d+)*)\]\s*$")


def sections_of(text: str) -> list[dict[str, Any]]:
    """Return `[{"title", "bullets": [{"text", "sources": [seq, …]}]}]`, in the order of the text.

    Lines that are neither heading nor bullet continue the bullet before them.
    """
    sections: list[dict[str, Any]] = []
    for line in text.splitlines():
        heading, bullet = HEADING.match(line), BULLET.match(line)
        if heading:
            sections.append({"title": heading_of(heading[1]), "bullets": []})
        elif bullet and sections:
            sections[-1]["bullets"].append(bullet_of(bullet[1]))
        elif line.strip() and sections and sections[-1]["bullets"]:
            last = sections[-1]["bullets"][-1]
            joined = bullet_of(f"{last['text']} {line.strip()}")
            last["text"] = joined["text"]
            last["sources"] += joined["sources"]
    return sections


def bullet_of(text: str) -> dict[str, Any]:
    """Split a bullet into its words and the seqs that its trailing source marks name."""
    marks = SOURCES.search(text)
    if marks is None:
        return {"text": text.strip(), "sources": []}
    seqs = [int(number) for number in re.findall(r"\d+", marks[1])]
    return {"text": text[: marks.start()].strip(), "sources": seqs}
