"""What may surprise about an expression is told."""

import pytest

from scheduler.model.cron_notes import cron_notes


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("*/60 * * * *", ["only 0 matches"]),
        ("0 */36 * * *", ["only 0 matches"]),
        ("*/45 * * * *", ["60 is no multiple of 45"]),
        ("*/40 0 0 * * *", ["second '*/40': 60 is no multiple of 40"]),
        ("0 0 13 * 5", ["either one is enough"]),
        ("0 0 */2 * 1", ["both must match"]),
        ("*/90 */7 1-7 * mon", ["only 0 matches", "24 is no multiple of 7", "either one is enough"]),
    ],
)
def test_surprising_expression_is_told(expression: str, told: list[str]) -> None:
    """Steps that do not do what they look like, and the day rule, are said in one sentence each."""
    notes = cron_notes(expression)

    assert len(notes) == len(told)
    assert all(part in note for part, note in zip(told, notes, strict=True))


@pytest.mark.parametrize(
    "expression", ["*/5 * * * *", "0 9 * * 1-5", "@daily", "0 0 1 * *", "5/90 0 * * *", "* * */7 * *"]
)
def test_plain_expression_is_not_commented(expression: str) -> None:
    """Where nothing surprises, nothing is said."""
    assert cron_notes(expression) == []
