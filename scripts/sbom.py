"""Writes the bill of materials of the shipped packages (CycloneDX), and lists their licences.

The packages of the lock files are installed into a separate environment, so that the list contains
no development tools and no test packages: scripts/sbom.py FILE
"""

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOOL = "cyclonedx-bom==7.5.0"
TOOL_PLACE = ROOT / ".venv" / "sbom"
SHIPPED = ROOT / ".venv" / "shipped"
LOCKED = tuple(
    f"constraints{name}.txt" for name in ("", "-anthropic", "-semantic", "-telemetry", "-tools")
)
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def main(target: Path) -> int:
    """Write the file, print the licences, and return the exit code."""
    if not (TOOL_PLACE / "bin" / "python").exists():
        venv.create(TOOL_PLACE, with_pip=True)
    venv.create(SHIPPED, with_pip=True, clear=True)
    tool, shipped = (str(place / "bin" / "python") for place in (TOOL_PLACE, SHIPPED))
    files = [word for name in LOCKED for word in ("-r", str(ROOT / name))]
    run(tool, *PIP, TOOL)
    run(shipped, *PIP, "--require-hashes", *files)
    # pip itself is not shipped.
    run(shipped, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools")
    run(
        *(tool, "-m", "cyclonedx_py", "environment", shipped),
        *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
        *("--output-reproducible", "--spec-version", "1.6", "--output-file", str(target)),
    )
    bill = json.loads(target.read_text("utf-8"))
    for line in list_licences(bill):
        sys.stdout.write(f"{line}\n")
    return 0


def run(*command: str) -> None:
    """Run a program. Exits if it fails; the program's own output gives the reason."""
    if code := subprocess.run(command, check=False, cwd=ROOT).returncode:  # noqa: S603  # our own
        sys.exit(code)


def list_licences(bill: dict[str, Any]) -> list[str]:
    """Return a line for each package: name, version and licences."""
    return [
        f"{package['name']} {package['version']}: {describe_licences(package)}"
        for package in sorted(bill["components"], key=lambda package: str(package["name"]).lower())
    ]


def describe_licences(package: dict[str, Any]) -> str:
    found = []
    for one in package.get("licenses", []):
        named = one.get("license", {})
        name = one.get("expression") or named.get("id") or named.get("name") or "?"
        found.append(str(name).partition("\n")[0])
    return ", ".join(dict.fromkeys(found)) or "not declared"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
