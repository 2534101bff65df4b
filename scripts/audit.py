"""Checks the locked packages for known vulnerabilities with pip-audit.

Exit code 0: clean. 1: a package has a known vulnerability, or is unknown to the service. 2: not
checked, because the advisory service or the package index was not reachable.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".venv" / "audit"
TOOL = "pip-audit==2.10.1"
LOCKED = tuple(
    f"constraints{name}.txt" for name in ("", "-anthropic", "-semantic", "-telemetry", "-tools")
)
CLEAN, FOUND, UNCHECKED = 0, 1, 2


def main() -> int:
    """Audit, print the result and return the exit code."""
    if not (PLACE / "bin" / "pip-audit").exists():
        venv.create(PLACE, with_pip=True)
        install = [str(PLACE / "bin" / "python"), "-m", "pip", "install", "--quiet", TOOL]
        if subprocess.run(install, check=False).returncode:  # noqa: S603  # our own command
            return report_unchecked("pip-audit could not be installed; the lines above say why")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run(  # noqa: S603  # as above
            [str(PLACE / "bin" / "pip-audit"), *build_options(report)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        return evaluate_report(report, done.stderr)


def build_options(report: Path) -> list[str]:
    files = [word for name in LOCKED for word in ("-r", name)]
    options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    return [*options, "--format", "json", "--output", str(report), *files]


def evaluate_report(report: Path, said: str) -> int:
    """Print the result of a report and return the exit code. Without a report, nothing was checked.

    pip-audit exits with 1 both for a vulnerability and without a connection.
    """
    try:
        result = json.loads(report.read_text("utf-8"))
        packages: list[dict[str, Any]] = result["dependencies"]
    except (OSError, ValueError, KeyError):
        return report_unchecked(said.strip().splitlines()[-1] if said.strip() else "no report")
    if packages and all("skip_reason" in package for package in packages):
        # A mirror or a proxy answers instead of the service.
        return report_unchecked(f"the service knows none of the {len(packages)} packages")
    lines = [
        f"{package['name']}: {text}" for package in packages for text in describe_package(package)
    ]
    if lines:
        sys.stdout.write("\n".join(["Found:", *lines]) + "\n")
        return FOUND
    sys.stdout.write(f"Clean: no known vulnerability in {len(packages)} packages.\n")
    return CLEAN


def describe_package(package: dict[str, Any]) -> list[str]:
    if "skip_reason" in package:
        return [f"not checked: {package['skip_reason']}"]
    texts = []
    for found in package["vulns"]:
        fixed = ", ".join(found["fix_versions"]) or "no version yet"
        texts.append(f"{package['version']} has {found['id']}, fixed in {fixed}")
    return texts


def report_unchecked(why: str) -> int:
    """Print that nothing was checked and return the exit code."""
    sys.stdout.write(f"Not checked: {why}.\nThe packages may or may not be vulnerable.\n")
    return UNCHECKED


if __name__ == "__main__":
    sys.exit(main())
