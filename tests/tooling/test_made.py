"""What scripts make from the sources: schemas of `--json`, and manual pages."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_schemas_are_what_the_models_say() -> None:
    """A changed model without `make schemas` is red here."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "schemas.py", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "")


def test_the_check_of_the_schemas_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or changed file is named."""
    module = script("schemas")
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["schemas.py"])
    module.main()
    (tmp_path / "job.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["schemas.py", "--check"])

    assert module.main() == 1


def test_no_schema_is_left_from_a_model_that_went() -> None:
    """The folder holds what the table names, and each is a schema that forbids nothing by accident."""
    module = script("schemas")
    folder = ROOT / "docs" / "schemas"

    assert {path.stem for path in folder.glob("*.json")} == set(module.SHAPES)
    for path in folder.glob("*.json"):
        assert json.loads(path.read_text())["$schema"].startswith("https://json-schema.org/")


def test_every_verb_has_a_manual_page_that_says_its_options() -> None:
    """The pages are the help."""
    pages = dict(script("manpages").pages())

    assert {"schedctl.1", "schedctl-list.1", "schedctl-skip-next.1", "schedctl-import.1"} <= set(pages)
    assert "\\-\\-json" in pages["schedctl-list.1"]
    assert "\\-\\-system" in pages["schedctl-import.1"]
    assert "\\-\\-check" in pages["schedulerd.8"]
    for name, text in pages.items():
        assert text.startswith(".TH"), name
        assert ".SH NAME\n" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_the_manual_pages_are_sound_roff(tmp_path: Path) -> None:
    """Groff reads each without a warning."""
    for name, text in script("manpages").pages():
        page = tmp_path / name
        page.write_text(text)
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, text=True, check=False
        )
        assert (name, done.returncode, done.stderr) == (name, 0, "")
