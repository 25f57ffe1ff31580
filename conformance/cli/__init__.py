"""The command line: docs/rules.md 5. Every error is one line that says what, why and what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from conformance import __version__
from conformance.cli import decide, diagnose, fuzz, info, inject, pipeline, reproduce, run, selftest
from conformance.errors import BackendUnavailable, HarnessError, SuiteError, UsageError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stream-conformance")
def cli() -> None:
    """Says what a device's streams and events really do, and whether an engine needs the copy-stream ring."""


for command in (
    *info.COMMANDS,
    run.run_command,
    decide.decide_command,
    pipeline.pipeline_command,
    diagnose.diagnose_command,
    reproduce.reproduce_command,
    selftest.selftest_command,
    inject.inject_command,
    fuzz.fuzz_command,
):
    cli.add_command(command)

#: Exit codes that all commands share.
USAGE, HARNESS, INTERRUPTED = 2, 4, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. No traceback reaches a user for anything that a user can mend."""
    try:
        code = cli.main(args=None if arguments is None else list(arguments), standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        _say(error.format_message())
        return USAGE
    except (UsageError, BackendUnavailable) as error:
        _say(str(error))
        return USAGE
    except HarnessError as error:
        _say(str(error))
        return HARNESS
    except SuiteError as error:
        _say(str(error))
        return HARNESS
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted: the log is kept and says that it is incomplete")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; nothing is left to say it to
        return 0
    return code if isinstance(code, int) else 0


def _say(text: str) -> None:
    sys.stderr.write("error: " + " ".join(text.split()) + "\n")
