"""`Idempotency-Key`: a request that is repeated with its key is answered as before, and done once.

Asked before anything else of the request is judged, so that a replacement that is repeated is not refused
for the ETag that it has itself moved on. The store asks again inside the transaction of the effect.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from starlette.requests import Request

from scheduler.clock import Clock
from scheduler.control.answers import ToAnswer
from scheduler.store.keyed import KEPT, Outcome, RecordedAnswer, RequestKey, judged
from scheduler.store.protocol import Reads
from scheduler.store.values import Peer


async def with_key(request: Request, peer: Peer, key: str, reads: Reads, clock: Clock) -> Peer:
    """The peer with the key of its request.

    Raises:
        AlreadyDone: the same request was carried out under this key.
        Invalid: another one was.
    """
    digest = await _digest(request)
    before = await reads.answered(peer.uid, key, clock.now() - KEPT)
    if before is not None:
        raise judged(before, digest)
    return replace(peer, key=RequestKey(key=key, request=digest, answer=_unanswerable))


def answering(peer: Peer, answer: ToAnswer) -> Peer:
    """The peer; a key of its request knows how the verb is answered."""
    return peer if peer.key is None else replace(peer, key=replace(peer.key, answer=answer))


def needing_none(peer: Peer) -> Peer:
    """The peer without the key of its request: carried out again, the verb makes nothing twice."""
    return replace(peer, key=None)


async def _digest(request: Request) -> str:
    target = f"{request.method} {request.url.path}?{request.url.query}\n"
    seen = "\n".join((target, request.headers.get("if-match", "")))
    return sha256(seen.encode() + b"\n" + await request.body()).hexdigest()


def _unanswerable(_: Outcome) -> RecordedAnswer:
    raise TypeError("this route does not say how it answers under a key")
