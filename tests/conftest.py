"""Leaves out what cannot be imported: `pytest -m musa` in a checkout must not end in another package's traceback.

On a vendor's machine only the core's packages are there, and the suite's own tests are deselected anyway. What was
left out is said in the header, so that it is never taken for a pass.
"""

from __future__ import annotations

import gc
import importlib.util
import re
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
#: Packages of the `test` extra that test modules import at their head.
EXTRA: Final = ("hypothesis", "jsonschema")
_MISSING: Final = [package for package in EXTRA if importlib.util.find_spec(package) is None]
#: A module that imports one of them, by itself or through our strategies.
_NEEDS: Final = re.compile(rf"^(?:from|import) (?:{'|'.join([*_MISSING, 'strategies'])})\b", re.MULTILINE)

collect_ignore: Final = (
    [path.name for path in sorted(HERE.glob("test_*.py")) if _NEEDS.search(path.read_text())] if _MISSING else []
)


def pytest_report_header() -> list[str]:
    """What is not collected, and why."""
    if not collect_ignore:
        return []
    return [f"without {' and '.join(_MISSING)} (the extra 'test'), not collected: {', '.join(collect_ignore)}"]


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end: the garbage collector need not look through it again and again."""
    gc.freeze()
