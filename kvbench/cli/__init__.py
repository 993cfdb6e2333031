"""The command line: one file a command; this file says only how a run ends.

Every error that kvbench raises on purpose becomes one line on standard error and exit code 2
here, and nowhere else. Results go to standard output; warnings, progress and errors to standard
error. An interrupted or terminated run removes the files that it began.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from kvbench.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED, KvbenchError, TraceError

if TYPE_CHECKING:
    from types import FrameType

COMPLETION_VARIABLE = "_KVBENCH_COMPLETE"
"""In which a shell asks what may follow: ``bash_complete``."""

SKIPPING = "; --on-error skip leaves bad rows out and counts them"
OUTPUT_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a write can fail with. Files that are written have an error of their own, so it was standard output."""


class _Terminated(BaseException):
    """The system asked the process to end."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        _end_well_when_terminated()
        code = _run(arguments)
    except KvbenchError as error:
        skipping = isinstance(error, TraceError) and error.can_be_skipped
        _fail(f"{error}{SKIPPING if skipping else ''}", EXIT_BAD_INPUT)
    except KeyboardInterrupt as error:
        _fail(f"interrupted; {_left_by(error)}", EXIT_INTERRUPTED)
    except _Terminated as error:
        _fail(f"terminated; {_left_by(error)}", EXIT_TERMINATED)
    except MemoryError as error:
        _fail(f"out of memory: {error}", EXIT_BAD_INPUT)
    except BrokenPipeError:
        # The reader of our output went away (`kvbench … | head`).
        _let_go_of_output()
        sys.exit(1)
    except OSError as error:
        if error.filename is not None or error.errno not in OUTPUT_ERRNOS:
            raise
        _let_go_of_output()
        _fail(f"standard output: {error.strerror or error}", EXIT_BAD_INPUT)
    else:
        sys.exit(code)


def _run(arguments: list[str] | None) -> int:
    # Imported here, where an interrupt is caught.
    import click

    from kvbench.cli.root import root

    asked = os.environ.get(COMPLETION_VARIABLE)
    if asked is not None:
        from kvbench.cli.completing import answer

        click.echo(answer(root, asked))
        return EXIT_OK
    try:
        code = root.main(arguments, prog_name="kvbench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as abort:
        raise (abort.__cause__ if isinstance(abort.__cause__, KeyboardInterrupt) else KeyboardInterrupt()) from None
    return code if isinstance(code, int) else EXIT_OK


def _end_well_when_terminated() -> None:
    def terminate(number: int, _: FrameType | None) -> NoReturn:
        # A second one ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        raise _Terminated

    # Only the main thread may set a handler; a program that calls main() in another has its own.
    with suppress(ValueError):
        signal.signal(signal.SIGTERM, terminate)


def _let_go_of_output() -> None:
    """Point standard output at nothing: Python would complain again while flushing it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _left_by(error: BaseException) -> str:
    """What a run that was cut short leaves, as its notes say."""
    return "; ".join(getattr(error, "__notes__", [])) or "nothing was written"


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
