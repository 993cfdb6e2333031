"""Starting: what a user waits for before anything is done."""

from __future__ import annotations

HELP = """
import contextlib, io
from {module} import {command}
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    {command}(["--help"])
"""
BARE = """
import click

@click.group()
def main():
    "A bare click program."
"""


class Start:
    """Each runs in a fresh interpreter."""

    def timeraw_import(self):
        return "import kvbench"

    def timeraw_help(self):
        return HELP.format(module="kvbench.cli", command="main")

    def timeraw_help_of_a_bare_click_program(self):
        return BARE + HELP.format(module="__main__", command="main").replace("from __main__ import main\n", "")

    def timeraw_replay_function(self):
        return "from kvbench import replay"
