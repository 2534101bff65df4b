"""Find accessibility faults of a page with axe."""

from functools import cache
from importlib.resources import files
from typing import Any

from tests.browser.desk import Person

SERIOUS = {"serious", "critical"}
# axe's best practices are included, in addition to the rules of WCAG 2.2 AA.
RUN_AXE = """axe.run(document, {
  resultTypes: ["violations"],
  rules: { "target-size": { enabled: true } },
})"""


@cache
def read_axe() -> str:
    """The source of axe."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def find_accessibility_faults(person: Person) -> list[str]:
    """The serious problems of the page: the rule, and the first elements that break it."""
    person.value(read_axe())
    found: list[Any] = person.value(RUN_AXE)["violations"]
    return [
        f"{fault['id']} × {len(fault['nodes'])}: "
        + "; ".join(node["html"][:160] for node in fault["nodes"][:3])
        for fault in found
        if fault["impact"] in SERIOUS
    ]
