"""The list of a batch from a file: streamed, bounded, and whatever is wrong with it is named."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from scheduler.executors.item_list import SLICE, ItemSource, ListFailed, open_file
from scheduler.model.items import LARGEST_ITEM, FrozenItem
from scheduler.model.jobs import BatchPolicy
from tests.support.executors import command, grant, surroundings

pytestmark = pytest.mark.asyncio


async def opened(folder: Path, name: str = "items.jsonl") -> ItemSource:
    granted = grant(command("true"), cwd=str(folder), batch=BatchPolicy(items_file=name))
    return await open_file(granted.definition, surroundings(folder))


async def listed(folder: Path, text: str) -> list[FrozenItem]:
    """All items of a file that says so."""
    (folder / "items.jsonl").write_text(text)
    source = await opened(folder)
    found: list[FrozenItem] = []
    try:
        while items := await source.next_slice():
            found += items
    finally:
        source.close()
    return found


async def test_each_line_is_an_item_and_blank_lines_are_none(tmp_path: Path) -> None:
    """Texts, numbers and objects, in the order of the file; a missing newline at the end is no fault."""
    found = await listed(tmp_path, '"intro"\n\n{"key": "ch1", "n": 1}\n  \n7')

    assert [(item.index, item.key) for item in found] == [(0, "intro"), (1, "ch1"), (2, "7")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('1\n{"key": \n', "line 2 is no JSON"),
        ('1\n"' + "x" * (2 * LARGEST_ITEM) + '"\n', "line 2 has more than"),
        ('{"key": "big", "text": "' + "x" * LARGEST_ITEM + '"}', "item big has"),
        ('{"key": ""}', "item 0 has no usable key"),
    ],
)
async def test_what_is_no_item_is_named(tmp_path: Path, text: str, said: str) -> None:
    """The file, and the line or the item."""
    with pytest.raises(ListFailed) as failed:
        await listed(tmp_path, text)

    assert said in (failed.value.ended.message or "")
    assert (failed.value.ended.message or "").startswith("items_file items.jsonl: ")


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """With the reason of the system."""
    with pytest.raises(ListFailed) as failed:
        await opened(tmp_path, "nowhere.jsonl")

    assert failed.value.ended.message == "items_file nowhere.jsonl cannot be read: No such file or directory"


async def test_more_items_than_a_run_may_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit it is sound, one more is not."""
    monkeypatch.setattr("scheduler.executors.item_list.MOST_ITEMS", 3)

    assert len(await listed(tmp_path, "1\n2\n3\n")) == 3
    with pytest.raises(ListFailed) as failed:
        await listed(tmp_path, "1\n2\n3\n4\n")
    assert "more than 3 items" in (failed.value.ended.message or "")


async def test_a_long_list_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    """A file of ten megabytes costs a slice of it."""
    line = '{"key": "k%d", "text": "' + "x" * 900 + '"}\n'
    with (tmp_path / "items.jsonl").open("w") as file:
        file.writelines(line % number for number in range(10 * SLICE))
    source = await opened(tmp_path)
    tracemalloc.start()
    number = 0
    while items := await source.next_slice():
        number += len(items)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    source.close()

    assert number == 10 * SLICE
    assert peak < 4 << 20
