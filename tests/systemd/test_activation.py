"""The control socket in systemd's hands."""

from __future__ import annotations

import threading

import pytest

from tests.systemd.support.sandbox import UNIT, Machine

pytestmark = pytest.mark.slow

JOBS = '[jobs.a]\nmanual = true\nshell = ":"\n'


@pytest.fixture
def activated(machine: Machine) -> Machine:
    """The service, on a socket that systemd opened."""
    machine.prepare(JOBS)
    machine.run("systemctl", "start", "schedulerd.socket")
    return machine


def test_the_first_client_starts_the_service(activated: Machine) -> None:
    """A request to the socket of a daemon that does not run yet starts it, and is answered."""
    assert activated.show("ActiveState") == "inactive"

    assert activated.get("/v1/jobs/a")["id"] == "a"

    mode = activated.run("stat", "-c", "%U:%G %a", "/run/schedulerd/control.sock")
    assert mode == "schedulerd:schedulerd 660"


def test_no_connection_is_lost_over_a_restart(activated: Machine) -> None:
    """Clients that come before, during and after restarts all get their answer, none is refused or cut."""
    activated.start()
    failures: list[object] = []
    answers: list[int] = []
    over = threading.Event()

    def client() -> None:
        while not over.is_set():
            try:
                answers.append(activated.ask("GET", "/healthz")[0])
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                failures.append(error)

    clients = [threading.Thread(target=client) for _ in range(4)]
    for thread in clients:
        thread.start()
    try:
        for _ in range(3):
            pid = activated.main_pid()
            activated.run("systemctl", "restart", UNIT)
            assert activated.main_pid() != pid
    finally:
        over.set()
        for thread in clients:
            thread.join()

    assert failures == []
    assert set(answers) == {200}
    assert len(answers) > 50


def test_a_stop_of_the_service_leaves_the_socket(activated: Machine) -> None:
    """After a stop the socket is still there, so the next client starts the service again."""
    activated.start()
    activated.run("systemctl", "stop", UNIT)

    assert activated.path("/run/schedulerd/control.sock").is_socket()
    assert activated.get("/v1/jobs/a")["id"] == "a"
