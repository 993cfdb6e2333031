"""The command line: one file a command; this file says only how a run ends.

Every error that kvbench raises on purpose becomes one line on standard error and exit code 2
here, and nowhere else. Results go to standard output; warnings, progress and errors to standard
error.
"""

from __future__ import annotations

import os
import sys

import click

from kvbench.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, KvbenchError


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    from kvbench.cli.root import root

    try:
        code = root.main(arguments, prog_name="kvbench", standalone_mode=False)
    except KvbenchError as error:
        _fail(str(error), EXIT_BAD_INPUT)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; nothing was written", EXIT_INTERRUPTED)
    except MemoryError as error:
        _fail(f"out of memory: {error}", EXIT_BAD_INPUT)
    except BrokenPipeError:
        # The reader of our output went away (`kvbench … | head`). Python would complain again
        # while flushing at exit, so standard output is pointed at nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    click.echo(f"error: {message}", err=True)
    sys.exit(code)
