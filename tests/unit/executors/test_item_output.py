"""The output of a batch: whole lines, each with the key of its item."""

from __future__ import annotations

from scheduler.executors.item_output import BatchOutput
from scheduler.executors.output import Stream
from scheduler.model.items import BegunItem
from scheduler.model.runs import Grant
from tests.support.executors import command, grant

OUT = Stream.STDOUT


class Written:
    """An output that remembers."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, _: Stream, data: bytes) -> None:
        self.text += data.decode()

    def close(self) -> None:
        raise AssertionError("the batch's output is closed by its owner")


def of(key: str) -> Grant:
    """The grant of an item's call."""
    whole = grant(command("true"))
    item = BegunItem(index=0, key=key, payload="1", nonce="n", attempts=1, tries=0)
    return Grant(run=whole.run, definition=whole.definition, item=item)


def test_lines_of_items_at_work_at_once_do_not_cut_each_other_in_two() -> None:
    """A line waits for its end; what has none at the end of the call gets one."""
    whole = Written()
    outputs = BatchOutput(whole)
    a, b = outputs.of(of("a")), outputs.of(of("b"))
    a.write(OUT, b"one ")
    b.write(OUT, b"other\nand ")
    a.write(OUT, b"line\n")
    b.close()
    a.close()

    assert whole.text == "[b] other\n[a] one line\n[b] and \n"


def test_a_line_without_end_is_not_kept_in_memory() -> None:
    """It is cut into parts, each marked."""
    whole = Written()
    output = BatchOutput(whole).of(of("a"))
    for _ in range(100):
        output.write(OUT, b"x" * 1_000)
    output.close()

    lines = whole.text.splitlines()
    assert len(lines) > 5
    assert all(line.startswith("[a] x") and len(line) < 10_000 for line in lines)
    assert sum(line.count("x") for line in lines) == 100_000
