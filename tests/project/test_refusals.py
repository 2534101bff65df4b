"""The engine's errors are translated only where a prompt is composed."""

import re
from pathlib import Path

CHATS = Path(__file__).parents[2] / "chats"
OF_THE_ENGINE = re.compile(r"\b(BudgetRefusal|PolicyImpossible|QuestionTooLarge|TurnTooLarge)\b")


def test_only_the_room_of_prompts_knows_the_refusals_of_the_engine() -> None:
    found = {
        str(path.relative_to(CHATS))
        for path in CHATS.rglob("*.py")
        if OF_THE_ENGINE.search(path.read_text(encoding="utf-8"))
    }
    assert found == {
        "prompt/composition.py",
        "prompt/model_choice.py",
        # The preview of the policy editor.
        "admin/policies/preview_as.py",
    }
