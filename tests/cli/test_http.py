from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from scheduler.cli.http import Answer, BrokenAnswer, Deadline, request
from scheduler.clock import SECOND

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def answered(pair: tuple[socket.socket, socket.socket], data: bytes) -> Answer:
    """The answer to a request, where the other side says `data` and closes."""
    ours, theirs = pair
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    return Answer(ours, Deadline(SECOND), request("GET", "/x", {}, None))


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello, and more", b"hello"),
        (OK + b"content-length:  5 \r\n\r\nhello", b"hello"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n", b"hello!"),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n", b"0123456789"),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", b""),
        (b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx", b"x"),
        (b"HTTP/1.1 200\nContent-Length: 1\n\nx", b"x"),
    ],
)
def test_bodies_end_where_they_end(
    pair: tuple[socket.socket, socket.socket], data: bytes, body: bytes
) -> None:
    """By length, by chunks, by the end of the stream, or at once; interim answers are passed over."""
    assert answered(pair, data).read() == body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200",
        OK,
        OK + b"Content-Length: 5\r\n\r\nhell",
        OK + b"Content-Length: five\r\n\r\nhello",
        OK + b"Content-Length: -1\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 No\r\n\r\n",
        b"220 mail.example ESMTP\r\n",
        OK + b"A: b\r\n" * 300,
        OK + b"A: " + b"x" * 40_000,
    ],
)
def test_broken_answers_are_told_apart_from_short_ones(
    pair: tuple[socket.socket, socket.socket], data: bytes
) -> None:
    """What is cut off, malformed, endless or another protocol is never taken for an answer."""
    with pytest.raises(BrokenAnswer):
        answered(pair, data).read()


def test_a_request_names_its_body(pair: tuple[socket.socket, socket.socket]) -> None:
    """Method, target, headers, and the length of the body before the body."""
    assert request("POST", "/v1/x?a=b", {"If-Match": '"3"'}, b"{}") == (
        b'POST /v1/x?a=b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIf-Match: "3"\r\n'
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )


def test_an_answer_counts_although_the_request_was_not_taken_whole(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """A server that refuses a large body closes before it has read it."""
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    theirs.close()

    assert Answer(ours, Deadline(SECOND), request("POST", "/x", {}, b"x" * 5_000_000)).status == 413


def test_a_patient_reader_waits_as_long_as_pieces_come(pair: tuple[socket.socket, socket.socket]) -> None:
    """Each piece renews the deadline; without one it passes."""
    ours, theirs = pair
    theirs.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    pieces = Answer(ours, Deadline(SECOND // 5), request("GET", "/x", {}, None)).pieces(patient=True)

    assert next(pieces) == b"a"
    with pytest.raises(TimeoutError):
        next(pieces)
