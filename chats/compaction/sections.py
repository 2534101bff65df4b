"""Parses a summary into sections of bullets, each with the seqs of its source messages."""

import re
from typing import Any

from contextpolicy.engine.summaries.prompts import strip_heading_signs
from contextpolicy.engine.text.claims import split_bullet_claims

HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)$")
BULLET = re.compile(r"^\s*[-*•]\s+(.+)$")


def parse_sections(text: str) -> list[dict[str, Any]]:
    """Return `[{"title", "bullets": [{"text", "sources": [seq, …]}]}]`, in the order of the text.

    A bullet with several claims yields one for each, with its author and day. Lines that are
    neither heading nor bullet continue the previous bullet. Without one in their section, they are
    ignored, as are bullets before the first heading.
    """
    sections: list[dict[str, Any]] = []
    for line in text.splitlines():
        heading, bullet = HEADING.match(line), BULLET.match(line)
        if heading:
            sections.append({"title": strip_heading_signs(heading[1]), "bullets": []})
        elif bullet and sections:
            sections[-1]["bullets"] += parse_bullet_claims(bullet[1])
        elif line.strip() and sections and sections[-1]["bullets"]:
            last = sections[-1]["bullets"].pop()
            first, *others = parse_bullet_claims(f"{last['text']} {line.strip()}")
            first["sources"] = last["sources"] + first["sources"]
            sections[-1]["bullets"] += [first, *others]
    return sections


def parse_bullet_claims(text: str) -> list[dict[str, Any]]:
    """Split a bullet into its claims, each with its text and the seqs of its sources."""
    return [
        {"text": f"{claim.label}{claim.text}", "sources": list(claim.sources)}
        for claim in split_bullet_claims(text)
    ]
