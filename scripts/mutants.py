"""Mutation test: breaks the rules, the write-back, the claims and the SQL of the store, one fault at a time.

    python -m scripts.mutants [--jobs N] [--minutes N] [--again] [--left] [--first] [--report FILE] [WORD ...]

With words, only faults whose name has one of them; of the others stays what came of them before. Works on a
copy of the tree (`trials`). What no test notices is printed; scripts/mutants.toml says of which faults that
is right, and why. Exit code 1: a survivor without a reason, or a reason without a survivor.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
REASONS: Final = ROOT / "scripts" / "mutants.toml"
KEPT: Final = ROOT / "build" / "mutants.json"
"""What came of each fault when it was last tried."""
NOTICED: Final = {"killed", "timed out"}
NOT_RUN: Final = "not run"


def report(verdicts: Mapping[str, str], reasons: Mapping[str, str]) -> str:
    """A table of files in Markdown, with what came of the faults in each."""
    columns = ["mutants", "killed", "timed out", "equivalent", "survived", "not run"]
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for name, verdict in verdicts.items():
        kind = "equivalent" if verdict == "survived" and name in reasons else verdict
        for row in (name.partition(" ")[0], "together"):
            rows[row]["mutants"] += 1
            rows[row][kind if kind in columns else "survived"] += 1
    lines = [f"| file | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    order = [*(name for name in rows if name != "together"), "together"]
    lines += [f"| `{name}` | {' | '.join(str(rows[name][column]) for column in columns)} |" for name in order]
    return "\n".join(lines) + "\n"


def findings(verdicts: Mapping[str, str], reasons: Mapping[str, str]) -> Iterator[str]:
    """What is wrong: a survivor without a reason, a reason without a survivor."""
    for name, verdict in verdicts.items():
        if verdict not in {*NOTICED, NOT_RUN} and name not in reasons:
            yield f"{verdict}: {name}"
    for name in reasons:
        if verdicts.get(name) in NOTICED:
            yield f"has a reason to survive, but was {verdicts[name]}: {name}"
        elif name not in verdicts:
            yield f"has a reason to survive, but there is no such mutant: {name}"


def merged(new: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """What came of each fault that there is: now, or when it was last tried."""
    return {
        name: before.get(name, NOT_RUN) if verdict == NOT_RUN else verdict for name, verdict in new.items()
    }


def is_left(name: str, before: Mapping[str, str], reasons: Mapping[str, str]) -> bool:
    """No test is known to notice it, and no reason is known why; or it was never tried."""
    verdict = before.get(name, NOT_RUN)
    return verdict not in NOTICED and (verdict == NOT_RUN or name not in reasons)


def known(path: Path) -> dict[str, str]:
    """What came of each fault before, as far as that was kept."""
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def given_reasons() -> dict[str, str]:
    """Which faults may survive, and why."""
    found: dict[str, str] = tomllib.loads(REASONS.read_text(encoding="utf-8"))["equivalent"]
    return found


def options(arguments: list[str]) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="only mutants whose name has one of these in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="what is left then is not run")
    parser.add_argument("--again", action="store_true", help="believe what the last run knew of the tests")
    reach = ROOT / "build" / "mutants-reach.json"
    parser.add_argument("--reach", type=Path, default=reach, help="where it is kept what that was")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where it is kept what came of each fault")
    parser.add_argument("--left", action="store_true", help="only what is neither killed nor explained yet")
    parser.add_argument("--first", action="store_true", help="a survivor of the first tests meets no others")
    parser.add_argument("--report", type=lambda path: Path(path).absolute(), help="where the table goes")
    return parser.parse_args(arguments)


def tried(arguments: list[str]) -> dict[str, str]:
    """What came of each fault that there is, tried in a copy of the tree; of most perhaps "not run"."""
    with tempfile.TemporaryDirectory(prefix="mut") as temporary:
        tree = Path(temporary, "tree")
        for name in ("scheduler", "scripts", "tests", "config"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        command = [sys.executable, "-m", "scripts.trials", *arguments]
        subprocess.run(command, cwd=tree, env=environment, check=True)  # noqa: S603 - this very interpreter
        found: dict[str, str] = json.loads((tree.parent / "verdicts").read_text(encoding="utf-8"))
        return found


def main() -> int:
    """Tries the faults, tells what is wrong; the exit code is returned."""
    chosen = options(sys.argv[1:])
    chosen.reach.parent.mkdir(parents=True, exist_ok=True)
    reasons, before = given_reasons(), known(chosen.kept)
    new = tried([*sys.argv[1:], "--reach", str(chosen.reach), "--kept", str(chosen.kept)])
    verdicts = merged(new, before)
    chosen.kept.write_text(json.dumps(verdicts, indent=0), encoding="utf-8")
    table = report(verdicts, reasons)
    if chosen.report:
        chosen.report.parent.mkdir(parents=True, exist_ok=True)
        chosen.report.write_text(table, encoding="utf-8")
    wrong = list(findings(verdicts, reasons))
    print(table, *wrong, sep="\n")
    return 1 if wrong or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
