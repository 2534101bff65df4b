"""Writes the tables of policy fields in `docs/policies.md` from the declarations, in each language.

`scripts/field_tables.py` replaces the tables below the last heading of the page. `--check` changes
nothing and fails if a page is out of date.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
sys.path.insert(0, str(ROOT))
django.setup()

from django.utils.translation import gettext, override  # noqa: E402 - after the settings

from chats.admin.policies.policy_inputs import build_meaning  # noqa: E402
from contextpolicy.engine.policy.fields import FIELDS  # noqa: E402
from contextpolicy.engine.policy.fields.declaration import (  # noqa: E402
    GROUPS,
    LARGEST_NUMBER,
    PolicyField,
)
from contextpolicy.engine.policy.policy import INSTANCE_DEFAULTS  # noqa: E402  # after Django's setup

# By language: the page, the heading of the tables, and the words of the tables.
PAGES = {
    "en": (
        "docs/policies.md",
        "## All fields",
        {
            "head": "| field | name in the API | values | default | several policies | meaning |",
            "min": "lowest",
            "max": "highest",
            "intersection": "common values",
            "nearest": "most specific",
            "yes_no": "`true`, `false`",
            "integer": "number",
            "text": "text",
            "names": "list",
            "object": "object",
            "up to": "up to {n:,}",
            "characters": "up to {n:,} characters",
            "none": "none",
            "all": "all",
            "quarter": "a quarter of `token_budget`",
        },
    ),
    "zh-hans": (
        "docs/zh-hans/policies.md",
        "## 全部字段",
        {
            "head": "| 字段 | API 中的名称 | 可用的值 | 默认值 | 多个策略 | 含义 |",
            "min": "最低值",
            "max": "最高值",
            "intersection": "共同的值",
            "nearest": "最具体的策略",
            "yes_no": "`true`、`false`",
            "integer": "数字",
            "text": "文本",
            "names": "列表",
            "object": "对象",
            "up to": "最大 {n:,}",
            "characters": "最多 {n:,} 个字符",
            "none": "无",
            "all": "全部",
            "quarter": "`token_budget` 的四分之一",
        },
    ),
}


def build_tables(words: Mapping[str, str]) -> str:
    """Return the tables of all groups as Markdown, in the active language."""
    tables = []
    for key, group in GROUPS.items():
        rows = [build_row(each, words) for each in FIELDS.values() if each.group == key]
        lines = [words["head"], "|---" * 6 + "|", *rows]
        tables += [f"### {gettext(group.title)}", "\n".join(lines)]
    return "\n\n".join(tables)


def build_row(declared: PolicyField, words: Mapping[str, str]) -> str:
    """Return the row of a field."""

    cells = [
        f"*{gettext(declared.label)}*",
        f"`{declared.name}`",
        describe_values(declared, words),
        describe_default(declared, words),
        words[declared.combine],
        str(build_meaning(declared)).replace("*", r"\*"),
    ]
    return f"| {' | '.join(cells)} |"


def describe_values(declared: PolicyField, words: Mapping[str, str]) -> str:
    """Return the values that a field accepts."""

    if declared.words or declared.values:
        return ", ".join(f"`{word}`" for word in declared.words or declared.values)
    if declared.kind == "share":
        return words["up to"].format(n=declared.largest)
    if declared.kind == "integer" and declared.largest < LARGEST_NUMBER:
        return words["up to"].format(n=declared.largest)
    if declared.longest:
        return words["characters"].format(n=declared.longest)
    return words[declared.kind]


def describe_default(declared: PolicyField, words: Mapping[str, str]) -> str:
    """Return the value of a field that no policy sets, and the values of strategies that differ."""
    if declared.name == "reserve_tokens":
        return words["quarter"]
    general = format_default(declared, declared.default, words)
    others = {
        strategy: getattr(values, declared.name)
        for strategy, values in INSTANCE_DEFAULTS.items()
        if declared.name != "strategy" and getattr(values, declared.name) != declared.default
    }
    own = [
        f"`{strategy}`: {format_default(declared, value, words)}"
        for strategy, value in others.items()
    ]
    return "; ".join([general, *own])


def format_default(declared: PolicyField, value: object, words: Mapping[str, str]) -> str:
    """Return a default value in words."""
    if value is None:
        return words["all" if declared.kind == "names" else "none"]
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f"{value:,}"
    return f"`{value}`" if value or value == 0 else words["none"]


def main() -> int:
    """Write or check the pages; return 1 if one is out of date."""
    outdated = []
    for language, (name, heading, words) in PAGES.items():
        page = ROOT / name
        before = page.read_text("utf-8")
        start, found, _ = before.partition(f"\n{heading}\n")
        if not found:
            raise SystemExit(f"{name} has no heading “{heading}”.")
        intro = text_before_tables(before, heading)
        with override(language):
            after = f"{start}\n{heading}\n\n{intro}\n\n{build_tables(words)}\n"
        if after != before:
            outdated.append(name)
            if "--check" not in sys.argv:
                page.write_text(after, "utf-8")
    if "--check" in sys.argv and outdated:
        names = ", ".join(outdated)
        print(f"{names}: the tables of policy fields are out of date. Run make schema.")  # noqa: T201 - for the console
        return 1
    return 0


def text_before_tables(text: str, heading: str) -> str:
    """Return the text between the heading and the first table; it is written by hand."""
    return text.partition(f"\n{heading}\n")[2].partition("\n### ")[0].strip()


if __name__ == "__main__":
    sys.exit(main())
