"""Rows of earlier versions are shown in the reader's language after their sentences changed."""

from string import Formatter

import pytest
from django.utils import translation
from django.utils.translation import gettext

from chats.exchange import bounds
from chats.ground.renamed_sentences import FORMER, RENAMED, WHOLE
from chats.ground.sentences import localize_sentence
from chats.models import FileImport, ImportOutcome

CHINESE = "zh-hans"
OF_IMPORTS = [each for each in RENAMED if "{name}" in each]


def list_placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name}


@pytest.mark.parametrize("model", [FileImport, ImportOutcome])
@pytest.mark.parametrize("template", OF_IMPORTS)
def test_an_old_reason_of_an_import_is_shown_in_chinese(
    model: type[FileImport | ImportOutcome], template: str
) -> None:
    name = bounds.WHOLE
    given = {"name": name, "number": 3}
    values = {"template": template, "values": given}
    row = model(reason=template.format(**given), reason_values=values)

    with translation.override(CHINESE):
        assert row.localized_reason == gettext(RENAMED[template]).format(**given)
        assert name in row.localized_reason
        assert "contain" not in row.localized_reason
    assert row.localized_reason == RENAMED[template].format(**given)


def test_a_renamed_sentence_inside_another_is_shown_in_chinese() -> None:
    inner = {"template": OF_IMPORTS[0], "values": {"name": bounds.WHOLE}}
    values = {"template": "{place}: {problem}", "values": {"place": "x", "problem": inner}}

    with translation.override(CHINESE):
        assert "contain" not in localize_sentence("stored", values)


@pytest.mark.parametrize("stored", [*RENAMED, *FORMER])
def test_each_old_sentence_has_a_translation(stored: str) -> None:
    current = RENAMED.get(stored, stored)
    assert list_placeholders(current) == list_placeholders(stored)
    with translation.override(CHINESE):
        assert gettext(current) != current


@pytest.mark.parametrize("stored", [each for each in [*RENAMED, *FORMER] if "tool" in each])
def test_an_old_failure_of_a_tool_server_is_shown_in_chinese(stored: str) -> None:
    as_value = {"template": WHOLE, "values": {"reason": stored}}
    with translation.override(CHINESE):
        shown = gettext(RENAMED.get(stored, stored))
        assert localize_sentence(stored, as_value) == localize_sentence(stored, {}) == shown
        assert shown != stored
