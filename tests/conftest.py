"""What every test folder shares: how hypothesis behaves here."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

LONG = "SCHEDULERD_SOAK" in os.environ

# A deadline per example would judge the machine, not the code: tests run beside each other on few cores.
# The same examples everywhere, so that a red test was made red by a change; `make soak` looks further.
settings.register_profile(
    "schedulerd", deadline=None, print_blob=True, derandomize=not LONG, max_examples=1_000 if LONG else 50
)
settings.load_profile("schedulerd")

# A script that runs the tests in its background has them ignore SIGINT, and so would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
