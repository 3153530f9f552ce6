from __future__ import annotations

import re

from tests.docs.support.pages import ROOT
from tests.support.deaths import DEATHS, UPGRADES

ROW = re.compile(r"^\| `([a-z-]+)` \| (.+) \|$", re.MULTILINE)


def test_the_page_tells_of_every_point_at_which_the_tests_kill() -> None:
    """The table has one line for each marked point, in their order, and for no other."""
    rows = ROW.findall((ROOT / "docs/faults.md").read_text())

    assert [name for name, _ in rows] == [death.name for death in DEATHS] + [name for name, _ in UPGRADES]
