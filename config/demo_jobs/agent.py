"""A long task of many small steps, as an agent that calls a slow service would be."""

from __future__ import annotations

import asyncio

from scheduler import RunContext


async def research(
    run: RunContext, *, topic: str = "lighthouses", steps: int = 12, seconds_per_step: float = 5.0
) -> dict[str, object]:
    """The number of notes taken on a topic. A cancel arrives as `CancelledError` at the next await."""
    notes = []
    for step in range(1, steps + 1):
        # Stands for a call to a paid service; a job has the machine's clock, not the daemon's.
        await asyncio.sleep(seconds_per_step)  # noqa: TID251
        notes.append(f"note {step} on {topic}")
        run.log.info("took a note", step=step)
        run.progress(done=step, total=steps, message=notes[-1], cost=round(0.002 * step, 3))
    return {"topic": topic, "notes": len(notes), "idempotency_key": run.idempotency_key}
