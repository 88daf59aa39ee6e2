"""The command ``semistream``; needs the extra ``cli``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command; an error that is ours is a message, not a traceback."""
    try:
        from semistream.cli.commands import app  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(f"the command line needs {error.name}: pip install 'semistream[cli]'")
    app()
