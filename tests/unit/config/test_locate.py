import tomllib

from hypothesis import given
from hypothesis import strategies as st

from scheduler.config.locate import locate

TEXT = '''# a comment with [jobs.no] in it
[jobs.a]
cron = "1 2 # not a comment"
retry = { attempts = 1,
  delay = "5s" }
env.X = """
[jobs.never]
k = 1
"""
items = [
  { key = 1 },
  2, # ] a bracket in a comment
]
[jobs."a.b".retry]
"q\\u0041" = 1
'''


def test_tables_and_keys_have_the_line_on_which_they_stand() -> None:
    """Headers, keys, dotted keys, inline tables and quoted names are found."""
    lines = locate(TEXT)

    assert lines.of(["jobs", "a"]) == 2
    assert lines.of(["jobs", "a", "cron"]) == 3
    assert lines.of(["jobs", "a", "retry", "delay"]) == 5
    assert lines.of(["jobs", "a", "env", "X"]) == 6
    assert lines.of(["jobs", "a", "items"]) == 10
    assert lines.of(["jobs", "a.b", "retry", "qA"]) == 15


def test_what_stands_in_strings_and_comments_is_no_key() -> None:
    """Text that only looks like a table is not taken for one."""
    assert locate(TEXT).names("jobs") == {"a", "a.b"}


def test_an_unknown_key_gets_the_line_of_what_is_around_it() -> None:
    """A key that is not there is pointed at by its table; nothing around it: no line."""
    lines = locate(TEXT)

    assert lines.of(["jobs", "a", "shell"]) == 2
    assert lines.of(["nothing"]) is None
    assert lines.of([]) is None


def test_a_broken_text_still_names_its_jobs() -> None:
    """The jobs of a text with a syntax error are known before and after the error."""
    assert locate('[jobs.x]\ncron = "* *\n[jobs.y]\nevery = 5\n').names("jobs") == {"x", "y"}


@given(st.text(alphabet="[]{}=.,\"'#\n\\ab \r", max_size=60) | st.text(max_size=60))
def test_no_text_makes_it_raise(text: str) -> None:
    """Any text gets an answer, and a line that it gives is one of the text."""
    line = locate(text).of(["a"])

    assert line is None or 1 <= line <= text.count("\n") + 1


_NAMES = st.text(alphabet="abc._- ü\"'", min_size=1, max_size=4)
_VALUES = st.sampled_from(["1", '"x"', "'[a]'", '"""\n[t]\n"""', "[1,\n 2]", "{ k = 1, j = [{ m = 2 }] }"])


@given(st.dictionaries(_NAMES, st.dictionaries(_NAMES, _VALUES, max_size=4), max_size=4))
def test_every_key_that_the_parser_finds_is_found(tables: dict[str, dict[str, str]]) -> None:
    """Whatever tomllib reads as a key of a table has exactly the line on which it was written."""
    written = ""
    where: dict[tuple[str, ...], int] = {}
    for table, keys in tables.items():
        where[table,] = written.count("\n") + 1
        written += f"[{_quoted(table)}] # {table!r}\n"
        for key, value in keys.items():
            where[table, key] = written.count("\n") + 1
            written += f"{_quoted(key)} = {value}\n"
    assert tomllib.loads(written).keys() == tables.keys()

    lines = locate(written)

    assert {path: lines.of(path) for path in where} == where


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
