"""Converts tool rules, headings and state schemas to editable lines, and back.

Formatting a value and parsing its lines gives the same value. An error about an invalid line names
its number.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext

from contextpolicy.engine.strict_json import load_strict_json
from contextpolicy.engine.text.schema import SchemaRefused, check_schema
from contextpolicy.wording import translate_phrase

# An explicit "nothing". Unlike an empty field, it overrides a farther policy.
NONE = "none"
# The form's notation for the built-in value. It also overrides a farther policy.
BUILT_IN = "(built in)"
NO_RULE = "no rule"
RULE_WORDS = {"limit": "limit", "keep_newest": "keep newest"}
RULE_EXAMPLE = "look_up: limit 4000, keep newest 3"
KINDS: Mapping[str, Mapping[str, Any]] = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "whole number": {"type": "integer"},
    "yes or no": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "list of texts": {"type": "array", "items": {"type": "string"}},
}
ONE_OF = "one of "
STATE_EXAMPLE = "destination (text): where the trip goes"

_PIECE = re.compile(rf"({'|'.join(RULE_WORDS.values())})\s+(\d{{1,9}})", re.IGNORECASE)
_FACT = re.compile(r"(?P<name>[^():]+?)\s*(?:\((?P<kind>[^()]*)\))?\s*(?::\s*(?P<told>.+))?")


class LinesRefused(ValueError):
    """Lines that cannot be parsed. The message names the line and shows the valid syntax.

    `reason` is a stable code.
    """

    code = "lines_refused"

    def __init__(self, sentence: str, *, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


def format_tool_rules(rules: Mapping[str, Mapping[str, int]]) -> str:
    """Return rules for tools as text, one tool per line."""
    lines = []
    for tool, rule in rules.items():
        texts = [f"{words} {rule[name]}" for name, words in RULE_WORDS.items() if name in rule]
        lines.append(f"{tool}: {', '.join(texts) or NO_RULE}")
    return "\n".join(lines) or NONE


def parse_tool_rules(text: str) -> dict[str, dict[str, int]]:
    """Parse rules from their lines. Raises LinesRefused."""
    found: dict[str, dict[str, int]] = {}
    lines: dict[str, int] = {}
    for number, line in _lines(text):
        tool, colon, said = (piece.strip() for piece in line.rpartition(":"))
        if not colon or not tool:
            raise LinesRefused(
                gettext(
                    "Line {number} is not a rule. Write the name of a tool (or * for all others), "
                    "a colon and the rule, such as “{example}”."
                ).format(number=number, example=RULE_EXAMPLE),
                reason="no_rule",
            )
        if tool in found:
            raise LinesRefused(
                gettext(
                    "Lines {first} and {second} both set a rule for {tool}. Combine them."
                ).format(first=lines[tool], second=number, tool=tool),
                reason="same_tool",
            )
        found[tool], lines[tool] = _rule(said, number), number
    return found


def format_headings(headings: Sequence[str]) -> str:
    """Return the headings of a summary as text, one per line."""
    return "\n".join(headings)


def parse_headings(text: str) -> list[str]:
    """Parse headings from their lines; `BUILT_IN` alone means the built-in headings."""
    return [line for _, line in _lines(text)]


def format_schema_lines(schema: Mapping[str, Any]) -> str:
    """Return a state's schema as lines, one per value; as JSON if lines cannot express it."""
    if not schema:
        return NONE
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and all(isinstance(p, Mapping) for p in properties.values()):
        text = "\n".join(_fact_line(name, fact) for name, fact in properties.items())
        try:
            if _canonical(_parse_schema(text)) == _canonical(schema):
                return text
        except LinesRefused:
            pass
    return json.dumps(schema, indent=2, ensure_ascii=False)


def parse_schema_lines(text: str) -> dict[str, Any]:
    """Parse a state's schema from its lines or from JSON. Raises LinesRefused."""
    if text.strip() == NONE:
        return {}
    schema = _parse_schema(text)
    try:
        check_schema(schema)
    except SchemaRefused as error:
        raise LinesRefused(translate_phrase(error.args[0]), reason="wrong_schema") from error
    return schema


def _parse_schema(text: str) -> dict[str, Any]:
    return _json_object(text) if text.lstrip().startswith("{") else _schema_of_lines(text)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    if text.strip() == NONE:
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def _rule(said: str, number: int) -> dict[str, int]:
    if said.lower() == NO_RULE:
        return {}
    rule: dict[str, int] = {}
    names = {words: name for name, words in RULE_WORDS.items()}
    # A comma within a number separates thousands.
    for piece in re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", said).split(","):
        match = _PIECE.fullmatch(piece.strip())
        if match is None:
            raise LinesRefused(
                gettext(
                    "Line {number}: “{rule}” is not a rule. Write “limit” with a number of "
                    "characters, “keep newest” with a number of results, or both separated by a "
                    "comma."
                ).format(number=number, rule=piece.strip()),
                reason="unknown_rule",
            )
        name = names[match[1].lower()]
        if name in rule:
            sentence = gettext("Line {number} contains “{word}” twice. Remove one.")
            raise LinesRefused(sentence.format(number=number, word=match[1]), reason="word_twice")
        rule[name] = int(match[2])
    return rule


def _fact_line(name: str, fact: Mapping[str, Any]) -> str:
    bare = {key: value for key, value in fact.items() if key != "description"}
    if isinstance(bare.get("enum"), list):
        kind = ONE_OF + ", ".join(map(str, bare["enum"]))
    else:
        kind = next((word for word, schema in KINDS.items() if schema == bare), "")
    told = f": {fact['description']}" if "description" in fact else ""
    return f"{name} ({kind}){told}"


def _schema_of_lines(text: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for number, line in _lines(text):
        match = _FACT.fullmatch(line)
        if match is None:
            raise LinesRefused(
                gettext(
                    "Line {number} is not a valid state value. Enter a name, its type in brackets "
                    "and a description, such as “{example}”."
                ).format(number=number, example=STATE_EXAMPLE),
                reason="no_value",
            )
        name = match["name"].strip()
        if name in properties:
            sentence = gettext("Line {number}: the value {name} already exists. Rename one.")
            raise LinesRefused(sentence.format(number=number, name=name), reason="value_twice")
        properties[name] = _fact(match["kind"], number)
        if match["told"]:
            properties[name]["description"] = match["told"].strip()
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _fact(kind: str | None, number: int) -> dict[str, Any]:
    wanted = " ".join((kind if kind is not None else "text").split())
    if wanted.lower().startswith(ONE_OF):
        choices = [choice.strip() for choice in wanted[len(ONE_OF) :].split(",")]
        if all(choices) and len(set(choices)) == len(choices):
            return {"enum": choices}
    elif wanted.lower() in KINDS:
        return dict(KINDS[wanted.lower()])
    raise LinesRefused(
        gettext(
            "Line {number}: “{kind}” is not a type. Use {kinds}, or “{one_of}” with choices "
            "separated by commas."
        ).format(number=number, kind=wanted, kinds=", ".join(KINDS), one_of=ONE_OF),
        reason="unknown_kind",
    )


# An escaped NUL in JSON; an escaped backslash before it is not part of it.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = load_strict_json(text, floats=float)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        sentence = gettext("Line {number} is not valid JSON: {reason}.")
        raise LinesRefused(
            sentence.format(number=error.lineno, reason=error.msg), reason="not_json"
        ) from error
    except (ValueError, RecursionError) as error:
        raise LinesRefused(
            gettext("The JSON contains a value that cannot be stored. Use plain text and numbers."),
            reason="not_storable",
        ) from error
    if _NUL.search(json.dumps(found)):
        raise LinesRefused(
            gettext("The JSON contains a NUL character. Remove it."), reason="nul_character"
        )
    # A text that begins with a brace is an object or invalid JSON.
    return dict(found)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)
