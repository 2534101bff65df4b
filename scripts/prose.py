"""Counts phrases that read like a literal translation, in everything a person can read.

`scripts/prose.py` fails if a surface has more of them per 1,000 words than its limit, or if a file
has more than `prose.json` allows for it. `scripts/prose.py --lower` writes smaller numbers to that
file after texts were rewritten; it never raises one. CONTRIBUTING lists the words to use instead.
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = ROOT / "scripts" / "prose.json"
# Prompts are a contract with models; word lists are data.
LEFT_OUT = (
    "migrations/",
    "chats/memory/search/irregular_forms.py",
    "contextpolicy/engine/summaries/prompts.py",
    "scripts/prose.py",
)
INLINE_CODE = re.compile(r"`[^`\n]+`")
# A noun clause in place of a name, such as "what was kept".
CLAUSE = (
    r"(?:is|was|are|were|has|had|have|comes|came|goes|stands|holds|counts|would|will|can|may|must"
    r"|it|they|an?|the|each|this|that|nobody|somebody|people|one)"
)
PHRASES = {
    "what …": rf"\bwhat {CLAUSE}\b",
    "who …": r"\bwhoever\b|\bfor who\b|\bwho (?:is|has|may|asks|reads|wrote|dies) (?!the)",
    "told, tells": r"\b(?:told|tells)\b",
    "somebody": r"\b(?:some|no|every|any)body\b",
    "stands": r"\bstands\b(?! (?:for|in for))",
    "of its own": r"\bof (?:one's|its|their|his|a person's) own\b|\bof (?:ours|theirs)\b",
    "beside": r"\bbesides?\b",
    # "No longer" and "there is no" are ordinary English.
    "is no": r"(?<!there )\b(?:is|are|was|were) no (?!longer)[a-z]+",
    "anew": r"\banew\b",
    "meanwhile": r"\bmeanwhile\b",
    "by itself": r"\bby (?:itself|themselves)\b",
    "in force": r"\b(?:in|into) force\b",
    "is over": r"\b(?:is|are|was) over\b",
    "goes along": r"\b(?:goe?s?|went|going) along\b",
    "as it is": r"\bas (?:it|they) (?:is|are|was|were|came|comes|stands?)\b",
    "becomes of": r"\b(?:came|comes?) to (?:nothing|be)\b|\b(?:became|becomes|came) of\b",
    "wish, deed": r"\b(?:wish(?:es)?|deeds?)\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "so many": r"\bso (?:many|long|often|few)\b",
    "takes up": r"\b(?:takes?|taken|took) (?:up|over)\b",
    "lies": r"\b(?:lies|lie)\b",
    "the one before": (
        r"\b(?:the one|those) (?:before|after)\b"
        r"|\b(?:call|version|row|prompt|step|message) before\b"
    ),
    "Tell whether": (
        r"^(?:Tell whether|(?:Return|Say|Tell|Show|Keep|Store) (?:what|wh(?:o|ich)|how))\b"
    ),
    "thing": r"\b(?:one|a|the|every) things?\b",
}
FOUND = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PHRASES.items()}
# Hits per 1,000 words.
LIMITS = {
    "templates": 1.0,
    "strings": 1.0,
    "schema": 1.0,
    "documents": 1.0,
    "docstrings": 1.5,
    "comments": 1.0,
    "tests": 3.0,
}
# A tag of a template or an element.
TAG = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}|<[^>]*>", re.DOTALL)
Text = tuple[str, str]


def find_phrases(text: str) -> list[str]:
    """Return the name of each phrase in a text, once for each place."""
    return [name for name, pattern in FOUND.items() for _ in pattern.findall(text)]


def read_python(source: str) -> Iterator[Text]:
    """Yield the docstrings, other strings of at least three words, and comments of a module."""
    tree = ast.parse(source)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = {
        id(node.body[0].value)  # type: ignore[attr-defined]  # every node with a docstring has a body
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                yield "docstrings", node.value
            elif node.value.count(" ") > 1:
                yield "strings", node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.string


def read_schema(source: str) -> Iterator[Text]:
    """Yield the summaries and descriptions of an OpenAPI schema."""
    nodes = [yaml.safe_load(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            for name, value in node.items():
                if name in ("summary", "description") and isinstance(value, str):
                    yield "schema", value
                else:
                    nodes.append(value)
        elif isinstance(node, list):
            nodes += node


def read_file(name: str, source: str) -> Iterator[Text]:
    """Yield (surface, text) of a file."""
    if name.endswith(".py"):
        texts = read_python(source)
        yield from (
            (("tests", text) for _, text in texts)
            if name.startswith(("tests/", "benchmarks/"))
            else texts
        )
    elif name.endswith(".html"):
        yield "templates", TAG.sub(" ", source)
    elif name.endswith("openapi.yaml"):
        yield from read_schema(source)
    elif name.endswith(".md"):
        # Inline code has values of the API and names, which are no prose.
        yield "documents", INLINE_CODE.sub(" ", source)


def measure(root: Path, names: list[str]) -> tuple[dict[str, float], dict[str, int]]:
    """Return the hits per 1,000 words of each surface, and the hits of each file that has any."""
    hits: Counter[str] = Counter()
    words: Counter[str] = Counter()
    files: dict[str, int] = defaultdict(int)
    for name in names:
        for surface, text in read_file(name, (root / name).read_text("utf-8")):
            count = len(find_phrases(text))
            hits[surface] += count
            words[surface] += len(text.split())
            if count:
                files[name] += count
    return {one: 1000 * hits[one] / words[one] for one in words if words[one]}, dict(files)


def complaints(
    rates: dict[str, float], files: dict[str, int], allowed: dict[str, int]
) -> Iterator[str]:
    """Yield a sentence for each surface over its limit, and for each file that got worse."""
    for surface, rate in sorted(rates.items()):
        if rate > LIMITS[surface]:
            yield f"{surface}: {rate:.1f} phrases per 1,000 words; the limit is {LIMITS[surface]}."
    for name, count in sorted(files.items()):
        if count > allowed.get(name, 0):
            most = allowed.get(name, 0)
            yield f"{name}: {count} phrases; {most} are allowed. Rewrite the new ones."


def tracked(root: Path) -> list[str]:
    """Return the files in the repository that people read."""
    listed = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"]
    names = subprocess.check_output(listed, text=True).splitlines()  # noqa: S603 - our own words
    return [
        name
        for name in names
        if name.endswith((".py", ".html", ".md", "docs/openapi.yaml"))
        and not any(part in name for part in LEFT_OUT)
        and (root / name).exists()
    ]


def main() -> int:
    """Print the rates; return 1 if there are complaints."""
    rates, files = measure(ROOT, tracked(ROOT))
    allowed = json.loads(ALLOWED.read_text("utf-8")) if ALLOWED.exists() else files
    if "--lower" in sys.argv:
        lower = {name: min(count, allowed.get(name, 0)) for name, count in files.items()}
        lower = {name: count for name, count in lower.items() if count}
        ALLOWED.write_text(json.dumps(dict(sorted(lower.items())), indent=0) + "\n", "utf-8")
        allowed = lower
    print(", ".join(f"{one} {rate:.1f}" for one, rate in sorted(rates.items())))  # noqa: T201 - for the console
    found = list(complaints(rates, files, allowed))
    for sentence in found:
        print(sentence)  # noqa: T201 - for the console
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
