from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.errors import SpawnFailed
from scheduler.executors.env_file import LARGEST, read_env_file


def test_values_are_read_as_written(tmp_path: Path) -> None:
    """Comments, quotes, escapes, `export`, blanks and a byte order mark mean what they mean in systemd."""
    file = tmp_path / "secrets.env"
    file.write_bytes(
        b"\xef\xbb\xbf# comment\r\n; also one\n\n"
        b"PLAIN=pass#word with blanks  \n"
        b"export EXPORTED = ja\r\n"
        b"SINGLE='a \\n \"b\" $c' # behind the value\n"
        b'DOUBLE="tab\\t quote\\" back\\\\ dollar\\$ \xc3\xbc"\n'
        b"EMPTY=\n"
        b"TWICE=first\nTWICE=second\n"
    )

    assert read_env_file(str(file)) == {
        "PLAIN": "pass#word with blanks",
        "EXPORTED": "ja",
        "SINGLE": 'a \\n "b" $c',
        "DOUBLE": 'tab\t quote" back\\ dollar$ ü',
        "EMPTY": "",
        "TWICE": "second",
    }


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"no equals hunter2", "not KEY=VALUE"),
        (b"1KEY=hunter2", "not KEY=VALUE"),
        (b"MY-KEY=hunter2", "not KEY=VALUE"),
        (b"=hunter2", "not KEY=VALUE"),
        (b"KEY='hunter2", "the quotes are not closed"),
        (b'KEY="hunter2\\"', "the quotes are not closed"),
        (b"KEY='hunter2' hunter2", "the quotes are not closed"),
        (b"KEY=hunter2\0", "NUL"),
        (b"KEY=hunter2\xff", "not UTF-8"),
    ],
)
def test_fault_names_file_and_line_and_no_value(tmp_path: Path, line: bytes, expected: str) -> None:
    """A malformed line is told by its place; no value shows (B54)."""
    file = tmp_path / "secrets.env"
    file.write_bytes(b"GOOD=1\n\n" + line + b"\n")

    with pytest.raises(SpawnFailed) as caught:
        read_env_file(str(file))

    assert f"{file}:3: " in caught.value.message
    assert expected in caught.value.message
    assert "hunter2" not in caught.value.message


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    """A missing file, a directory, a FIFO and a giant are refused by name, and none is waited for."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    giant = tmp_path / "giant"
    giant.write_bytes(b"#" * (LARGEST + 1))

    for path in (tmp_path / "missing", tmp_path, fifo, giant):
        with pytest.raises(SpawnFailed, match=str(path)):
            read_env_file(str(path))
