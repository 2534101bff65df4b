"""Renders task list items, `- [ ] …` and `- [x] …`, with disabled check boxes.

A click does not change the message. The item's text is the label of its box.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

BOX = re.compile(r"\[([ xX])\](?=[ \t])")


def install_task_list_rules(md: MarkdownIt) -> None:
    md.core.ruler.after("inline", "tasks", mark_tasks)


def mark_tasks(state: StateCore) -> None:
    """Add a box and a label to each list item that starts with brackets."""
    tokens = state.tokens
    for item, paragraph, words in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if item.type != "list_item_open" or paragraph.type != "paragraph_open":
            continue
        children = words.children or []
        box = BOX.match(children[0].content) if children and children[0].type == "text" else None
        if box is None:
            continue
        item.attrSet("class", "task")
        children[0].content = children[0].content[box.end() :]
        words.children = [
            Token("task_label_open", "label", 1),
            build_checkbox_token(is_done=box[1] != " "),
            *children,
            Token("task_label_close", "label", -1),
        ]


def build_checkbox_token(*, is_done: bool) -> Token:
    box = Token("task_box", "input", 0, attrs={"type": "checkbox", "disabled": ""})
    if is_done:
        box.attrSet("checked", "")
    return box
