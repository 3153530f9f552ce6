"""The items of a batch run: reading them, and settling what nobody else knows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from scheduler.clock import Clock
from scheduler.control import models as api
from scheduler.control.answers import Answers
from scheduler.control.asking import Admitted, RunPath, look
from scheduler.control.keys import answering
from scheduler.control.pages import Cursors
from scheduler.control.ports import Operations
from scheduler.control.requests import ItemBody, ItemsQuery, Nothing
from scheduler.control.views import Views, in_slices
from scheduler.errors import Fault, Invalid
from scheduler.model.items import ItemState
from scheduler.model.runs import RunId
from scheduler.store.protocol import Reads


class ItemRoutes:
    """Routes below /v1/runs/{id}/items."""

    def __init__(self, operations: Operations, reads: Reads, views: Views, clock: Clock) -> None:
        self._operations = operations
        self._reads = reads
        self._views = views
        self._clock = clock
        self._answers = Answers(views)
        self._cursors = Cursors("items")

    def register(self, router: APIRouter) -> None:
        """The routes are part of the router."""
        router.get("/v1/runs/{id}/items")(self.list_items)
        router.post("/v1/runs/{id}/items/{key:path}")(self.settle)

    async def list_items(self, id: RunPath, asked: Annotated[ItemsQuery, Query()]) -> api.ItemPage:
        """Items in the order of the list, all of them or those in one state; none while there is no list."""
        after = _place(self._cursors.text(asked.cursor))
        await look(self._operations)
        await self._reads.run(id)
        async with self._views.one_list:
            rows = await self._reads.items(id, state=asked.state, after=after, limit=asked.limit + 1)
            page = self._cursors.page(rows, asked.limit, [f"{item.ready_at}.{item.index}" for item in rows])
            items = await in_slices(page.rows, self._views.item, self._breathe)
        return api.ItemPage(items=items, next_cursor=page.next_cursor, counts=await self._counts(id))

    async def settle(
        self,
        id: RunPath,
        key: Annotated[str, Path(description="key of an item")],
        _: Annotated[Nothing, Query()],
        peer: Admitted,
        body: ItemBody,
    ) -> api.ItemAndRun:
        """The item is what the operator says it is; a run that ended is judged anew."""
        asking = answering(peer, self._answers.item)
        item, run = await self._operations.settle_item(id, key, ItemState(body.state), asking)
        return api.ItemAndRun(item=self._views.item(item), run=self._views.summary(run))

    async def _counts(self, id: RunId) -> api.ItemCounts | None:
        counts = await self._reads.item_counts(id)
        return None if counts is None else self._views.item_counts(counts)

    async def _breathe(self) -> None:
        await self._clock.sleep(0)


def _place(key: str | None) -> tuple[int, int] | None:
    """The place behind which a page begins.

    Raises:
        Invalid: the cursor was not made here.
    """
    if key is None:
        return None
    ready_at, dot, index = key.partition(".")
    if not (dot and _is_number(ready_at) and _is_number(index)):
        message = "it is no cursor of this list: write the next_cursor of the page before, or leave it out"
        raise Invalid(f"cursor: {message}", faults=[Fault(key="cursor", message=message)])
    return int(ready_at), int(index)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
