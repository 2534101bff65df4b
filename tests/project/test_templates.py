"""Rules for templates, and the HTML that results."""

from pathlib import Path

import pytest
from django.template import Context, Engine

LAID_OUT = """\
<ul>
  {% for word in words %}
    <li>
      {{ word }}
      {% if loop %}
        again
      {% endif %}
    </li>
  {% endfor %}
</ul>
<pre>{{ lines }}</pre>
<p>One {% if loop %}loop{% else %}line{% endif %}, and
  another.</p>
"""


@pytest.fixture
def sent(tmp_path: Path) -> str:
    (tmp_path / "page.html").write_text(LAID_OUT, encoding="utf-8")
    engine = Engine(dirs=[str(tmp_path)], loaders=["project.templates.Loader"])
    context = Context({"words": ["a", "b"], "lines": "if x:\n    y()"})
    return engine.get_template("page.html").render(context)


def test_a_page_has_no_indentation_and_no_line_for_a_condition(sent: str) -> None:
    assert sent.startswith("<ul>\n<li>\na\n</li>\n<li>\nb\n</li>\n</ul>\n")


def test_words_stay_apart(sent: str) -> None:
    assert "<p>One line, and\nanother.</p>" in sent


def test_what_variables_bring_keeps_its_indentation(sent: str) -> None:
    assert "<pre>if x:\n    y()</pre>" in sent
