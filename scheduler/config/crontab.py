"""Crontab files: the door to reading them (`crontab_parse`) and taking them over (`crontab_jobs`)."""

from __future__ import annotations

from scheduler.config.crontab_jobs import ImportedJobs, ImportNote, home_of, to_job_tables
from scheduler.config.crontab_parse import CrontabEntry, EnvEntry, ErrorEntry, JobEntry, parse_crontab

__all__ = [
    "CrontabEntry",
    "EnvEntry",
    "ErrorEntry",
    "ImportNote",
    "ImportedJobs",
    "JobEntry",
    "home_of",
    "parse_crontab",
    "to_job_tables",
]
