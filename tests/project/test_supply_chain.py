"""The reports about packages: vulnerabilities, bill of materials, licences."""

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.support.repository import ROOT

# Licences that allow use in a service and distribution with it. LGPL: psycopg, unmodified.
ALLOWED = re.compile(
    r"MIT|BSD|Apache|PSF|Python Software Foundation|MPL|LGPL|ISC|0BSD|Dual License"
)


def load(name: str) -> Any:
    """A module of the folder `scripts`, which is not a package."""
    from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415

    spec = spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLEAN = {"name": "django", "version": "5.2", "vulns": []}
SKIPPED = {"name": "redis", "skip_reason": "not found"}
BAD = {"name": "celery", "version": "5", "vulns": [{"id": "PYSEC-1", "fix_versions": ["5.1"]}]}
UNFIXED = {"name": "celery", "version": "5", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([CLEAN], 0, "Clean: no known vulnerability in 1 packages."),
        ([CLEAN, BAD], 1, "celery: 5 has PYSEC-1, fixed in 5.1"),
        ([CLEAN, UNFIXED], 1, "celery: 5 has PYSEC-2, fixed in no version yet"),
        # One package that the service does not know is not clean.
        ([CLEAN, SKIPPED], 1, "redis: not checked: not found"),
        # It knows none: something else answers.
        ([SKIPPED], 2, "Not checked: the service knows none of the 1 packages."),
    ],
)
def test_clean_found_and_not_reachable_are_distinguished(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    packages: list[dict[str, Any]],
    code: int,
    said: str,
) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"dependencies": packages}))
    assert load("audit").evaluate_report(report, "") == code
    assert said in capsys.readouterr().out


def test_without_a_report_nothing_was_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "ERROR:pip_audit._cli:HTTPSConnectionPool(host='pypi.org'): no route"
    assert load("audit").evaluate_report(tmp_path / "none.json", f"warning\n{said}\n") == 2
    assert f"Not checked: {said}." in capsys.readouterr().out


def test_licences_are_listed_from_the_bill() -> None:
    told = {
        "components": [
            {"name": "b", "version": "2", "licenses": [{"expression": "MIT OR Apache-2.0"}]},
            {"name": "a", "version": "1", "licenses": [{"license": {"id": "MIT"}}]},
            {"name": "c", "version": "3"},
        ]
    }
    assert load("sbom").list_licences(told) == [
        "a 1: MIT",
        "b 2: MIT OR Apache-2.0",
        "c 3: not declared",
    ]


def test_each_shipped_package_has_a_known_licence() -> None:
    locked = (ROOT / "constraints.txt").read_text("utf-8")
    unknown = []
    for name in re.findall(r"^([a-z0-9.-]+)==", locked, re.MULTILINE):
        try:
            told: Any = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            # Of another platform or version of Python.
            continue
        stated = [told.get("License-Expression"), (told.get("License") or "").split("\n")[0]]
        stated += [c for c in told.get_all("Classifier", []) if c.startswith("License")]
        if not ALLOWED.search(" ".join(filter(None, stated))):
            unknown.append(f"{name}: {stated}")
    assert unknown == []
