"""schedulerd: an async scheduler daemon whose pauses survive and whose locks release themselves.

The names exported here are the whole contract of a Python handler.
"""

from scheduler.model.handlers import Completed, Retry, RunContext

__all__ = ["Completed", "Retry", "RunContext"]
__version__ = "0.1.0"
