"""A `requests` session whose every request goes to one Unix socket."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

BASE_URL = "http://schedulerd"


class _Connection(HTTPConnection):
    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__("schedulerd", **options)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))


class _Pool(HTTPConnectionPool):
    def __init__(self, path: Path) -> None:
        super().__init__("schedulerd")
        self._path = path

    def _new_conn(self) -> _Connection:
        return _Connection(self._path)


class _Adapter(HTTPAdapter):
    def __init__(self, path: Path) -> None:
        self._pool = _Pool(path)
        super().__init__()

    def get_connection_with_tls_context(
        self,
        request: requests.PreparedRequest,
        verify: Any,
        proxies: Mapping[str, str] | None = None,
        cert: Any = None,
    ) -> HTTPConnectionPool:
        return self._pool


def unix_session(path: Path) -> requests.Session:
    """A session for `BASE_URL`, whose requests all go to the socket at `path`; proxies count for nothing."""
    session = requests.Session()
    session.trust_env = False
    session.mount(BASE_URL, _Adapter(path))
    return session
