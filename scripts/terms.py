"""Finds words that the glossary of CONTRIBUTING replaces, where they are used as terms.

`scripts/terms.py` reads the text of pages, of the administration and of errors (from the
translation catalogue and the templates), the schema and the documents, and the names of modules,
classes, functions, arguments and fields. `old_names.toml` lists the names that stay, with the
reason.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from prose import INLINE_CODE, ROOT, read_file, tracked

OLD_NAMES = ROOT / "scripts" / "old_names.toml"
CATALOGUES = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES"
PRODUCT = ("chats/", "contextpolicy/", "project/", "replay/", "scripts/", "speed/")
# The table itself.
GLOSSARY = re.compile(r"^\| say \| not \|\n(?:\|.*\n)+", re.MULTILINE)
# Each pattern finds the use as a term. The words also have ordinary meanings: "the rest of a list".
TEXTS = {
    "lead": r"\b(?:the|a|this|its|same|shared|whole) lead\b",
    "reading ahead": r"\breads? ahead\b|\breading ahead\b",
    "rests": r"\brest(?:s|ed)\b",
    "cache mark": r"\bcache marks?\b",
    "vector space": r"\bvector spaces?\b|\bcompares vectors\b",
    "passage": r"\bpassages?\b",
    "finding": r"\bfindings\b|\b(?:a|the|each|every|no) finding\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "wish": r"\bwish(?:es)?\b",
    "program": r"\bprograms?\b",
    "judgement": r"\bjudg(?:e?ments?|es?|ed|ing)\b(?! \()",
    "in force": r"\bin(?:to)? force\b",
    "lives, stands": r"\blives\b|\bstands\b(?! (?:for|in for)\b)",
    "told": r"\btold\b|\bproposed preferences?\b|\bnoted preferences?\b",
    "unmanaged": r"\bunmanaged\b|\bpass(?:ed|es)? on\b",
    "went along": r"\b(?:goes?|went|going) along\b|\bretrieved references\b",
    "folded": r"\bfold(?:s|ed|ing)?\b(?! letters)",
    "stands under": r"\b(?:stands?|lies?) under\b",
    "as its bytes left": r"\bbytes left\b",
    "work that is due": r"\bwork that is due\b",
    "rights": r"\brights\b",
    "chain": r"\bthe chain of (?:a|the|this|your) (?:chat|instance)\b",
}
# The addresses of links are names.
LINK = re.compile(r"(?<=\])\([^)\s]*\)|\[\d{4}\]")
FIELD_LIST = re.compile(r"Values by name: [\w, \n]+\.")
FOUND = {term: re.compile(pattern, re.IGNORECASE) for term, pattern in TEXTS.items()}
NAMES = re.compile(
    r"(?:^|_)(?:lead|rests?_?until|rests|findings?|mend(?:s|ed)?|wish(?:es)?|programs?"
    r"|judg(?:e|es|ed|ement)|in_force|lives|stands|told|noted|proposed|unmanaged|passed_on"
    r"|fold(?:s|ed)?|rights|passages?)(?:_|$)"
)
Place = tuple[str, str]


def convert_to_snake_case(name: str) -> str:
    """Return `PassedOn` as `passed_on`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def find_terms(text: str) -> list[str]:
    """Return the terms that a text should not use."""
    return [term for term, pattern in FOUND.items() if pattern.search(text)]


def read_messages(path: Path) -> Iterator[str]:
    """Yield the English messages in a catalogue."""
    parts: list[str] | None = None
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(("msgid ", "msgid_plural ")):
            parts = [ast.literal_eval(line.split(" ", 1)[1])]
        elif line.startswith('"') and parts is not None:
            parts.append(ast.literal_eval(line))
        elif parts is not None:
            yield "".join(parts)
            parts = None


def read_texts() -> Iterator[Place]:
    """Yield (place, text) of pages, errors, the schema and the documents."""
    for path in sorted(CATALOGUES.glob("*.po")):
        for text in read_messages(path):
            # Placeholders are names.
            yield path.name, re.sub(r"%\(\w+\)s|{[^{}]*}|<[^>]*>", " ", text)
    for name in tracked(ROOT):
        if name.endswith((".html", ".md", "openapi.yaml")) and not name.startswith("tests/"):
            source = (ROOT / name).read_text("utf-8")
            for _, text in read_file(name, GLOSSARY.sub("", source)):
                for line in clean_text(text).splitlines():
                    yield name, line


def clean_text(text: str) -> str:
    """Remove inline code, link URLs, and the schema's list of policy fields."""
    return FIELD_LIST.sub("", LINK.sub("", INLINE_CODE.sub(" ", text)))


def read_names(name: str, source: str) -> Iterator[str]:
    """Yield the names of a module, its classes, functions, arguments and fields."""
    yield Path(name).stem
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (each.arg for each in (*node.args.args, *node.args.kwonlyargs))
        if isinstance(node, ast.ClassDef | ast.Module):
            yield from read_targets(node)


def read_targets(node: ast.ClassDef | ast.Module) -> Iterator[str]:
    """Yield the names that the body of a class or module assigns."""
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        for target in targets:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def read_old(kind: str) -> set[str]:
    """Return the `names` or the `values` of `old_names.toml`."""
    sections = tomllib.loads(OLD_NAMES.read_text("utf-8")).values()
    return {name for section in sections for name in section.get(kind, ())}


def find_unused_values() -> set[str]:
    """Return the values of `old_names.toml` that no module of the product contains."""
    modules = (name for name in tracked(ROOT) if name.startswith(PRODUCT) and name.endswith(".py"))
    source = "\n".join((ROOT / name).read_text("utf-8") for name in modules)
    return {value for value in read_old("values") if f'"{value}"' not in source}


def list_new_names() -> Iterator[Place]:
    """Yield (file, name) for each name of the product with such a word."""
    for file in tracked(ROOT):
        if not file.endswith(".py") or not file.startswith(PRODUCT):
            continue
        for name in dict.fromkeys(read_names(file, (ROOT / file).read_text("utf-8"))):
            if NAMES.search(convert_to_snake_case(name)):
                yield file, name


def main() -> int:
    """Print the uses; return 1 if there are any."""
    old = read_old("names")
    lines = [
        f"{place}: “{term}” in: {' '.join(text.split())[:120]}"
        for place, text in read_texts()
        for term in find_terms(text)
    ]
    names = list(list_new_names())
    lines += [f"{file}: the name {name}" for file, name in names if name not in old]
    unused = (old - {name for _, name in names}) | find_unused_values()
    lines += [f"old_names.toml: {name} is not used" for name in sorted(unused)]
    for line in lines:
        print(line)  # noqa: T201 - for the console
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
