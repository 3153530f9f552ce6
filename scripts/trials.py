"""The trials of the mutation test: a plugin of pytest that runs the tests against each fault. See `mutants`.

Runs in a copy of the tree, which is its current directory and first on its path. Nothing is imported twice:
one process collects all tests, notes in a fork what each of them reaches, and tries each fault in a fork.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import itertools
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter, UserDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import pytest

from scheduler.store import schema
from scheduler.store.sqlite import SqliteStore
from scripts import mutation
from scripts.mutable import MODULES, Mutant, load, numbered, python_mutants, replace_queries, sql_mutants
from scripts.mutants import NOT_RUN, given_reasons, is_left, known, options

TESTS: Final = ["tests/unit/rules", "tests/unit/store", "tests/store", "tests/races", "tests/engine"]
TEXT_ONLY: Final = "tests/unit/store/test_authors.py"
"""It reads the text of the SQL, so it would notice a fault that changes nothing."""
WHOLE_TABLES: Final = "_rows.py::"
"""They compare whole tables before and after a verb: most faults of a query are noticed by one of them."""
PROVES_NOTHING: Final = "would prove nothing"
"""How a test fails that takes a clause out of a query, and does not find its text."""
LONGEST: Final = 3.0
"""Seconds; a test that takes longer is not asked."""
FIRST: Final = 10.0
"""Seconds of tests that each fault meets at first; a survivor meets the others when all have been tried."""
BUSY: Final = 2.0
"""A test takes no longer, on a quiet machine, than so many times the CPU time that it needs: what it really
took, beside others that kept the machine busy, says nothing of that."""
PATIENCE: Final = 30
"""A test that takes so many times its usual time, and ten seconds at least, is ended: it has noticed."""


def _now() -> float:
    return time.monotonic()  # noqa: TID251 - a tool waits in real time


class Trials:
    """The plugin that, in place of running the tests, runs them against each fault."""

    def __init__(self, options: argparse.Namespace, folder: Path, out: TextIO) -> None:
        self._options = options
        self.verdicts: dict[str, str] = {}
        self._folder, self._out = folder, out
        self._failed = False
        self._tests: dict[str, pytest.Item] = {}
        self._took: dict[str, float] = {}
        self._cost: dict[str, float] = {}
        self._reach: dict[str, set[str]] = defaultdict(set)
        self._killers: dict[str, list[str]] = defaultdict(list)
        self._breadth: dict[str, int] = {}
        self._kills: Counter[str] = Counter()
        self._until = _now() + 60 * options.minutes

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # noqa: PLC0415 - pytest wants to be there first

        quiet = [Phase.explicit, Phase.generate]  # nobody asks for the smallest example
        settings.register_profile("mutants", deadline=None, database=None, derandomize=True, phases=quiet)
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] = self._took.get(report.nodeid, 0.0) + report.duration
        if report.failed and PROVES_NOTHING not in report.longreprtext:
            self._failed = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._tests = {item.nodeid: item for item in session.items if TEXT_ONLY not in item.nodeid}
        gc.freeze()
        self._recall()
        mutants = numbered([*sql_mutants(), *(one for path in MODULES for one in python_mutants(path))])
        wanted = list(self._wanted(mutants))
        self._say(f"{len(self._tests)} tests in {sum(self._cost.values()):.0f} s, {len(wanted)} mutants")
        self._try_all(wanted, first=True)
        if not self._options.first:
            left = [mutant for mutant in wanted if self.verdicts[mutant.name] == "survived"]
            self._try_all(left, first=False)
        return True

    def _wanted(self, mutants: Iterable[Mutant]) -> Iterator[Mutant]:
        """Those to be tried, as the command line says; what came of each is not known yet."""
        words, before, reasons = self._options.words, known(self._options.kept), given_reasons()
        for mutant in mutants:
            self.verdicts[mutant.name] = NOT_RUN
            named = not words or any(word in mutant.name for word in words)
            if named and (not self._options.left or is_left(mutant.name, before, reasons)):
                yield mutant

    def _recall(self) -> None:
        """What each test takes and reaches is known, from the last run where no file is another since."""
        believed = self._options.again and self._options.reach.exists()
        known = json.loads(self._options.reach.read_text()) if believed else {}
        files = {test.partition("::")[0] for test in self._tests}
        broken = b"".join(Path(path).read_bytes() for path in MODULES)  # their lines are what is reached
        sums = {file: hashlib.sha256(Path(file).read_bytes() + broken).hexdigest() for file in files}
        known = {file: kept for file, kept in known.items() if kept["sum"] == sums.get(file)}
        fresh = [test for test in self._tests if test.partition("::")[0] not in known]
        if fresh and os.waitpid(self._fork("base", partial(self._look, fresh)), 0)[1]:
            raise RuntimeError((self._folder / "base" / "error").read_text())
        if fresh:
            for test, seen in json.loads((self._folder / "base" / "seen").read_text()).items():
                file = test.partition("::")[0]
                known.setdefault(file, {"sum": sums[file], "tests": {}})["tests"][test] = seen
            self._options.reach.write_text(json.dumps(known))
        for kept in known.values():
            for test, (took, cost, units) in kept["tests"].items():
                self._took[test], self._cost[test], self._breadth[test] = took, cost, len(units)
                for unit in units:
                    self._reach[unit].add(test)

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def _fork(self, name: str, work: Callable[[Path], int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code, folder = 3, self._folder / name
        try:
            folder.mkdir()
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
            code = work(folder)
        except BaseException as error:  # noqa: BLE001 - the parent tells of it
            (folder / "error").write_text("".join(traceback.format_exception(error)))
        finally:
            os._exit(code)

    def _run(self, tests: list[str]) -> Iterator[str]:
        """Each test, after it has run; one that hangs is the end of this process."""
        for test, following in zip(tests, [*tests[1:], None], strict=False):
            item, after = self._tests[test], self._tests[following] if following else None
            signal.alarm(max(10, int(PATIENCE * self._took.get(test, 10.0))))
            begun = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            self._cost.setdefault(test, min(self._took[test], BUSY * (time.process_time() - begun)))
            yield test

    def _look(self, tests: list[str], folder: Path) -> int:
        """What each test takes and reaches; nothing, if it fails or takes long."""
        reached: set[str] = set()

        def note(path: str, line: int) -> None:
            reached.update((path, f"{path}:{line}"))

        class Noting(dict[str, str]):
            def __getitem__(self, name: str) -> str:
                reached.add(name)
                return super().__getitem__(name)

        replace_queries(Noting(schema.load_queries()))
        really_open = SqliteStore.open

        class NotingOf(UserDict[str, str]):
            """A test's own queries, which may do more than be looked up."""

            def __init__(self, queries: Mapping[str, str]) -> None:
                self.data = queries  # type: ignore[assignment] # as it is, not a copy of it

            def __getitem__(self, name: str) -> str:
                reached.add(name)
                return self.data[name]

        def open_noting(*args: Any, queries: Mapping[str, str] | None = None, **values: Any) -> Any:
            own = None if queries is None else NotingOf(queries)
            return really_open(*args, queries=own, **values)

        SqliteStore.open = open_noting  # type: ignore[method-assign] # in this fork alone
        for path in MODULES:
            tree = mutation.probed(ast.parse(Path(path).read_text(encoding="utf-8")))
            load(path, tree, partial(note, path))
        seen: dict[str, tuple[float, float, list[str]]] = {}
        for test in self._run(tests):
            units = [] if self._failed or self._cost[test] > LONGEST else sorted(reached)
            seen[test] = (self._took[test], self._cost[test], units)
            self._failed = False
            reached.clear()
        (folder / "seen").write_text(json.dumps(seen))
        return 0

    def _try_all(self, mutants: list[Mutant], *, first: bool) -> None:
        """Each fault meets those of its tests that noticed one before, then simple ones; or all others."""
        running: dict[int, tuple[str, Mutant]] = {}
        for number, mutant in enumerate(mutants):
            if _now() > self._until:
                break
            killers = self._killers[mutant.unit]
            others = self._order(mutant.unit)
            tests = list(dict.fromkeys([*killers[::-1], *others]))
            times = itertools.accumulate(self._cost[test] for test in tests)
            tests = [test for test, sum_ in zip(tests, times, strict=True) if (sum_ <= FIRST) is first]
            name = f"m{number}"
            pid = self._fork(name, partial(self._try, mutant, tests))
            running[pid] = (name, mutant)
            while len(running) >= self._options.jobs:
                self._end_one(running)
        while running:
            self._end_one(running)

    def _order(self, unit: str) -> list[str]:
        """First those that have noticed most; then quick ones, or for a query the simplest of each file.

        For a query those that compare whole tables come before all others that have noticed as much.
        """
        if unit.startswith("scheduler/"):
            return sorted(self._reach[unit], key=lambda test: (-self._kills[test], self._cost[test]))
        places: Counter[str] = Counter()
        ranks: dict[str, tuple[int, bool, int, float]] = {}
        for test in sorted(self._reach[unit], key=lambda test: self._breadth[test] * self._cost[test]):
            file, price = test.partition("::")[0], self._breadth[test] * self._cost[test]
            ranks[test] = (-self._kills[test], WHOLE_TABLES not in test, places[file], price)
            places[file] += 1
        return sorted(ranks, key=ranks.__getitem__)

    def _try(self, mutant: Mutant, tests: list[str], folder: Path) -> int:
        os.setpgid(0, 0)
        mutant.apply()
        for test in self._run(tests):
            if self._failed:
                (folder / "killer").write_text(test)
                return 1
        return 0

    def _end_one(self, running: dict[int, tuple[str, Mutant]]) -> None:
        pid, status = os.wait()
        name, mutant = running.pop(pid)
        folder = self._folder / name
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what its tests have started
        if (folder / "killer").exists():
            killer = (folder / "killer").read_text()
            self._kills[killer] += 1
            killers = self._killers[mutant.unit]
            self._killers[mutant.unit] = [test for test in killers if test != killer] + [killer]
        code = os.waitstatus_to_exitcode(status)
        verdict = {0: "survived", 1: "killed", -signal.SIGALRM: "timed out"}.get(code, f"ended with {code}")
        if verdict != "killed" and self.verdicts.get(mutant.name) != verdict:
            told = (folder / "error").read_text() if (folder / "error").exists() else ""
            self._say(f"{verdict}: {mutant.name} {told}")
        self.verdicts[mutant.name] = verdict
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Tries the faults and writes what came of each; the exit code is returned."""
    chosen = options(sys.argv[1:])
    folder, out = Path("..").absolute(), os.fdopen(os.dup(1), "w")
    trials = Trials(chosen, folder, out)
    with (folder / "log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    arguments = ["-q", "-p", "no:cacheprovider", "--timeout=0", *TESTS]
    code = pytest.main(arguments, plugins=[trials])
    if code != pytest.ExitCode.OK:
        print((folder / "log").read_text(encoding="utf-8")[-5_000:], file=out)
    (folder / "verdicts").write_text(json.dumps(trials.verdicts), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
