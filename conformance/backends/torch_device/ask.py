"""Asks torch itself which devices it has: in a short process, so that whoever asks never imports torch.

Started as ``python -m conformance.backends.torch_device.ask PATH...`` with the asker's sys.path; answers
with one line of JSON behind `MARK`, since vendors' libraries print too.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from conformance.backends.torch_device.loading import available, load, stand_in
from conformance.errors import BackendUnavailable

#: The beginning of the line that is the answer.
MARK: Final = "stream-conformance-devices: "
#: Seconds: a cold import of torch takes some, a broken driver may take for ever.
LIMIT: Final = 60.0
#: What is asked about: cuda has a reader that needs no torch.
ASKED: Final = ("rocm", "musa", "accelerator")


def asked(name: str, *, here: bool = False) -> list[tuple[str, str]]:
    """(index, name) of each device that torch shows for a backend. Raises BackendUnavailable with the reason.

    ``here``: this process asks, as one does that opens the device; else a short one of its own.
    """
    if here:
        found = _look(name)
    else:
        answer = facts()
        if "error" in answer:
            raise BackendUnavailable(f"{name}: torch could not be asked: {answer['error']}")
        found = answer["backends"][name]
    if "reason" in found:
        raise BackendUnavailable(found["reason"])
    return [(str(index), device) for index, device in enumerate(found["devices"])]


def facts() -> dict[str, Any]:
    """What torch says, asked once per process and environment: ``error``, or ``torch`` and ``backends``."""
    return _facts(tuple(os.path.abspath(entry) for entry in sys.path), frozenset(os.environ.items()))


@functools.lru_cache(maxsize=8)
def _facts(path: tuple[str, ...], environ: frozenset[tuple[str, str]]) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, *path]
    try:
        # By name in the folder that this package is in, as the supervisor starts its children.
        ended = subprocess.run(
            command,
            cwd=Path(__file__).parents[3],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it did not answer within {LIMIT:g} s; is the driver stuck?"}
    for line in reversed(ended.stdout.splitlines()):
        if line.startswith(MARK):
            answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return answer
    said = (ended.stderr.strip() or ended.stdout.strip() or "nothing was printed").splitlines()[-1]
    return {"error": f"exit code {ended.returncode}; {said}"}


def _look(name: str) -> dict[str, Any]:
    try:
        torch, module, vendor = load(name)
        available(name, torch, module, vendor)
        count = int(module.device_count())
        names = [_name(module, index, vendor.module) for index in range(count)]
    except BackendUnavailable as error:
        return {"reason": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a vendor raises, this backend is not to be used
        return {"reason": " ".join(f"{name}: {type(error).__name__}: {error}".split())}
    if not names:
        return {"reason": f"{name}: torch.{vendor.module}.device_count() is 0"}
    return {"devices": names, "stand_in": stand_in(module)}


def _name(module: Any, index: int, fallback: str) -> str:
    asked_name = getattr(module, "get_device_name", None)
    return str(asked_name(index)) if asked_name is not None else fallback


def main(path: list[str]) -> None:
    """Answer on stdout."""
    sys.path += [entry for entry in path if entry not in sys.path]
    found = {name: _look(name) for name in ASKED}
    torch = sys.modules.get("torch")
    answer = {"torch": str(getattr(torch, "__version__", "")), "backends": found}
    sys.stdout.write(f"\n{MARK}{json.dumps(answer)}\n")
    sys.stdout.flush()
    os._exit(0)  # not through vendors' exit handlers, which may hang


if __name__ == "__main__":
    main(sys.argv[1:])
