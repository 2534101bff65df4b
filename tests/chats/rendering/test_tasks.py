"""Task lists: disabled checkboxes, labelled with the text of the item."""

import pytest

from chats.rendering.markdown import render_markdown


def test_a_task_has_a_disabled_box_that_its_words_label() -> None:
    html = render_markdown("- [ ] buy *milk*\n- [x] pay\n- [X] go")

    assert '<label><input type="checkbox" disabled=""> buy <em>milk</em></label>' in html
    assert html.count('checked=""') == 2
    assert html.count('<li class="task">') == 3
    assert html.count("disabled") == 3


def test_tasks_stand_within_tasks() -> None:
    html = render_markdown("1. [ ] a\n   - [x] b\n\n   c\n2. d")

    assert html.count("checkbox") == 2
    assert html.count("<li>") == 1


@pytest.mark.parametrize("text", ["[ ] a", "- [ ]", "- [ ]a", "- [y] a", r"- \[ ] a", "- `[ ]` a"])
def test_brackets_elsewhere_are_brackets(text: str) -> None:
    assert "<input" not in render_markdown(text)
