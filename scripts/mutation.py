"""Print what became of the mutants of the last `mutmut run`, module by module; needs a run before.

A mutant is killed when a test notices it; one that runs out of time counts as noticed.
"""

import json
import sys
from pathlib import Path

SURVIVED = 0
LEAST = 90

failed = False
for path in sorted(Path("mutants").rglob("*.meta")):
    ended = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    if not ended:
        continue
    unknown = sum(code is None for code in ended.values())
    alive = sorted(name for name, code in ended.items() if code == SURVIVED)
    share = 100 * (len(ended) - unknown - len(alive)) / len(ended)
    failed |= share < LEAST
    sys.stdout.write(f"{path.name.removesuffix('.py.meta'):12} {len(ended):4} mutants")
    sys.stdout.write(f" {len(alive):3} alive {unknown:3} not run {share:6.1f} % killed\n")
    sys.stdout.write("".join(f"    {name}\n" for name in alive))
sys.exit(failed)
