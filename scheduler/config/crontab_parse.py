"""Reads a crontab text into settings, jobs and errors, line by line, as crontab(5) says.

Nothing is raised for a bad line: it becomes an error entry that names the line, and the lines round it
are read on. A file with an error must not be installed, as with crontab(1). Where Debian's cron, cronie
and the manual part, the manual wins; where reading on would run something else than was meant, the line
is an error (carriage returns, a cut-off last line, six fields, random values).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.errors import Invalid
from scheduler.model.cron_parse import (
    ALIASES,
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    WEEKDAY,
    BadField,
    parse_fields,
    read_field,
)
from scheduler.model.zones import load_zone

REBOOT: Final = "@reboot"

_BLANKS: Final = " \t"
_FIELDS: Final = (MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_NAME: Final = re.compile(r"""(?P<quote>["'])(?P<quoted>.*?)(?P=quote)|(?P<plain>(?!["'])[^ \t=]*)""")
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?", re.ASCII)
_OPTION: Final = re.compile(r"-[nqs]+(?=[ \t]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvEntry:
    """A setting: it holds for the lines below it.

    Attributes:
        line: 1-based line of the file.
        name: any text without blanks.
        value: quotes taken off, nothing expanded.
    """

    line: int
    name: str
    value: str

    def to_json(self) -> dict[str, object]:
        """The entry as JSON."""
        return {"type": "env", "line": self.line, "name": self.name, "value": self.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntry:
    r"""A command and when it runs.

    Attributes:
        line: 1-based line of the file.
        schedule: five fields parted by one blank each, or an alias, `@reboot` among them.
        user: who runs it; None in a user's crontab.
        command: text for the shell, `\%` already turned into `%`.
        stdin: what follows the first bare `%`, or None.
        env: the settings above the line.
        timezone: the zone set by CRON_TZ, or None for the machine's.
    """

    line: int
    schedule: str
    user: str | None
    command: str
    stdin: str | None
    env: dict[str, str]
    timezone: str | None

    def to_json(self) -> dict[str, object]:
        """The entry as JSON."""
        return {
            "type": "job",
            "line": self.line,
            "schedule": self.schedule,
            "user": self.user,
            "command": self.command,
            "stdin": self.stdin,
            "env": dict(self.env),
            "tz": self.timezone,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry:
    """A line that cannot be taken.

    Attributes:
        line: 1-based line of the file.
        code: a word for programs, for example `bad-minute`.
        message: what is wrong and what to write, for people.
    """

    line: int
    code: str
    message: str

    def to_json(self) -> dict[str, object]:
        """The entry as JSON; the message is for people and stays out of it."""
        return {"type": "error", "line": self.line, "code": self.code}


CrontabEntry: TypeAlias = EnvEntry | JobEntry | ErrorEntry


class _BadLine(Exception):
    """The line is an error; it never leaves this module."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def parse_crontab(text: str, *, system: bool) -> list[CrontabEntry]:
    """The entries of a crontab in the order of its lines; blank lines and comments have none.

    Args:
        text: the whole file.
        system: a system crontab (/etc/crontab, /etc/cron.d): a user column comes before the command.
    """
    return _Reader(system=system).read(text)


class _Reader:
    """Carries the settings from line to line."""

    def __init__(self, *, system: bool) -> None:
        self._system = system
        self._env: dict[str, str] = {}
        self._timezone: str | None = None

    def read(self, text: str) -> list[CrontabEntry]:
        lines = text.split("\n")
        entries: list[CrontabEntry] = []
        for number, line in enumerate(lines, 1):
            content = line.lstrip(_BLANKS)
            if not content.strip(_BLANKS + "\r") or content.startswith("#"):
                continue
            try:
                _check_line(content, is_cut_off=number == len(lines))
                entries.append(self._entry(number, content))
            except _BadLine as bad:
                entries.append(ErrorEntry(line=number, code=bad.code, message=bad.message))
        return entries

    def _entry(self, number: int, content: str) -> CrontabEntry:
        setting = _setting(content)
        if setting is None:
            return self._job(number, content)
        name, value = setting
        if name == "CRON_TZ":
            self._timezone = _zone(value)
        self._env[name] = value
        return EnvEntry(line=number, name=name, value=value)

    def _job(self, number: int, content: str) -> JobEntry:
        schedule, rest = _alias(content) if content.startswith("@") else _fields(content)
        user: str | None = None
        if self._system:
            user, rest = _user(rest)
        command, stdin = _command(rest)
        return JobEntry(
            line=number,
            schedule=schedule,
            user=user,
            command=command,
            stdin=stdin,
            env=dict(self._env),
            timezone=self._timezone,
        )


def _check_line(content: str, *, is_cut_off: bool) -> None:
    """Refuses a line that may not be what its author wrote."""
    if is_cut_off:
        raise _BadLine("missing-newline", "the last line does not end in a line feed: it may be cut off")
    if content.endswith("\r"):
        raise _BadLine("crlf", "the line ends in CR LF: the shell would see the CR; save with LF alone")
    if "\0" in content:
        raise _BadLine("bad-character", "the line holds a NUL character")


def _setting(content: str) -> tuple[str, str] | None:
    """Name and value, if the line is `NAME = value`; None if it is something else."""
    name = _NAME.match(content)
    rest = content[name.end() :].lstrip(_BLANKS) if name else ""
    if name is None or not rest.startswith("="):
        return None
    text = name["plain"] if name["quote"] is None else name["quoted"]
    if not text:
        raise _BadLine("bad-env-name", "a setting without a name: write NAME=value")
    return text, _value(rest[1:].strip(_BLANKS))


def _value(text: str) -> str:
    """A value without its quotes; `#` and `$` mean nothing in it."""
    if not text or text[0] not in "\"'":
        return text
    end = text.find(text[0], 1)
    if end != len(text) - 1:
        what = "has no closing quote" if end < 0 else "goes on after its closing quote"
        raise _BadLine("bad-env-quoting", f"the value {what}: a comment needs a line of its own")
    return text[1:-1]


def _zone(name: str) -> str:
    try:
        return load_zone(name).name
    except Invalid as error:
        raise _BadLine("bad-timezone", f"CRON_TZ: {error.message}") from error


def _alias(content: str) -> tuple[str, str]:
    word, rest = _word(content)
    if word != REBOOT and word not in ALIASES:
        known = " ".join([*ALIASES, REBOOT])
        raise _BadLine("bad-time-specifier", f"{word!r} is not known: write one of {known}")
    return word, rest


def _fields(content: str) -> tuple[str, str]:
    """The five time fields, judged one after the other, and what follows them."""
    words: list[str] = []
    rest = content
    for field in _FIELDS:
        word, rest = _word(rest)
        if not word:
            raise _BadLine("missing-field", f"{field.name} is missing: five time fields, then the command")
        if "~" in word:
            raise _BadLine("unsupported-random", f"{field.name}: {word!r}: random not supported")
        try:
            if not word.isascii():
                raise BadField(field.name, f"{word!r}: only ASCII letters, digits and signs are read")
            read_field(field, word)
        except BadField as bad:
            raise _BadLine(f"bad-{bad.field}", f"{bad.field}: {bad.why}") from bad
        words.append(word)
    try:
        parse_fields(words)
    except BadField as bad:
        raise _BadLine("never-fires", bad.why) from bad
    return " ".join(words), rest


def _user(rest: str) -> tuple[str, str]:
    word, rest = _word(rest)
    if not word:
        raise _BadLine("missing-user", "the user is missing: a system crontab names one before the command")
    if not _USER.fullmatch(word):
        raise _BadLine(
            "bad-user", f"{word!r} is no user name: a system crontab has five time fields, then it"
        )
    return word, rest


def _command(rest: str) -> tuple[str, str | None]:
    """The command and its standard input, or None where it has no bare `%`."""
    if rest.startswith("*"):
        raise _BadLine("bad-command", "the command begins with *: a crontab has no field for seconds")
    if _OPTION.match(rest):
        raise _BadLine("unsupported-option", f"{_word(rest)[0]!r} before the command: option not supported")
    parts = _split_percent(rest)
    if not parts[0].strip(_BLANKS):
        raise _BadLine("missing-command", "the command is missing")
    if len(parts) == 1:
        return parts[0], None
    stdin = "\n".join(parts[1:])
    return parts[0], stdin if not stdin or stdin.endswith("\n") else stdin + "\n"


def _split_percent(text: str) -> list[str]:
    r"""The text cut at each bare `%`; `\%` becomes `%`, any other backslash stays with what follows it."""
    parts, position = [""], 0
    while position < len(text):
        pair = text[position : position + 2]
        if pair == "\\%":
            parts[-1] += "%"
        elif pair.startswith("%"):
            parts.append("")
            position -= 1
        elif pair.startswith("\\"):
            parts[-1] += pair
        else:
            parts[-1] += pair[0]
            position -= 1
        position += 2
    return parts


def _word(text: str) -> tuple[str, str]:
    """The first word, and what follows the blanks after it."""
    end = next((index for index, char in enumerate(text) if char in _BLANKS), len(text))
    return text[:end], text[end:].lstrip(_BLANKS)
