"""Ending what an attempt of a dead daemon has left running, before anything else of that run starts (I11).

Found by its environment (our store, the run, a claim not newer than the one seen), wherever it has wandered,
and by the session recorded in the run's row, where the environment says nothing; a daemon may die before that
was written, then it is the session that the claim's main process still leads. The environment is proof
through reboots; a pid with ticks is proof only within the boot that it was recorded in.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Final

from scheduler.clock import SECOND, Clock, Micros
from scheduler.executors.ending import end_processes
from scheduler.executors.processes import Belonging, Session
from scheduler.executors.threads import NoThread, off_loop
from scheduler.model.runs import Run

_UPTIME: Final = Path("/proc/uptime")


class Orphans:
    """Ends leftovers. Fulfils `engine.ports.Undertaker`.

    Args:
        store_id: of the store that the runs are recorded in; another store's are never touched.
        clock: measures the grace; tells whether a claim is of this boot.
    """

    def __init__(self, store_id: str, clock: Clock) -> None:
        self._store_id = store_id
        self._clock = clock

    async def end_leftovers(self, run: Run, grace: Micros) -> bool:
        belonging = Belonging(
            store_id=self._store_id, run_id=run.id, claim=run.claim, session=self._session_of(run)
        )
        if belonging.session is None:
            with contextlib.suppress(NoThread):
                belonging = replace(belonging, session=await off_loop(belonging.led_session))
        return await end_processes(belonging.processes, clock=self._clock, grace=grace)

    def _session_of(self, run: Run) -> Session | None:
        """The recorded session, unless the machine may have been started anew since the claim."""
        if not run.pid or not run.pid_ticks or run.claimed_at is None:
            return None
        now = self._clock.now()
        if not now - _uptime() <= run.claimed_at <= now:
            return None
        return Session(leader=run.pid, ticks=run.pid_ticks)


def _uptime() -> Micros:
    """Time since the boot, suspend included, as proc_uptime(5) has it; 0 where it is not known."""
    try:
        return round(float(_UPTIME.read_text(encoding="ascii").split()[0]) * SECOND)
    except (OSError, ValueError, IndexError):
        return 0
