"""What every test folder shares: how hypothesis behaves here."""

from __future__ import annotations

from hypothesis import settings

# A deadline per example would judge the machine, not the code: tests run beside each other on few cores.
settings.register_profile("schedulerd", deadline=None, print_blob=True)
settings.load_profile("schedulerd")
