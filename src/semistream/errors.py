"""Everything that semistream raises on purpose.

::

    SemistreamError
    ├── OptionError (ValueError)       an argument has an illegal value
    │   ├── BudgetError                the memory budget is too small for what is asked
    │   └── values.IllegalValueError   a value of a file, before its line is known
    ├── SchemaError (TypeError)        columns or types of stream and master do not go together
    ├── MasterError (OSError)          a master table cannot be read or written
    │   ├── MasterNotFoundError        there is none
    │   ├── SnapshotNotFoundError      there is one, but not this snapshot of it
    │   ├── FormatVersionError         it was written in another format version
    │   ├── CorruptPageError           its bytes are not those that were written
    │   └── master.sync.merge.MisfitError  changes take rows away that it does not have
    ├── StoreError (OSError)           a database cannot be reached, or refuses
    ├── HostFolderError (OSError)      a folder for what joins share on a host cannot be used
    ├── MissingRowsError (LookupError) stream rows have no master row, which was to be an error
    ├── JoinFailedError (RuntimeError) the join met an error before, and is over
    ├── JoinClosedError (RuntimeError) the join was closed
    ├── RowTooLargeError (ValueError)  one stream row alone exceeds the window
    ├── UnreadOutputError (RuntimeError)  an earlier offer was not read to its end
    ├── pipeline.PipelineError (ValueError)  mistakes in a pipeline's file, all of them
    ├── spark.members.MembersError (RuntimeError)  others write to a dimension all the time
    ├── spark.checkpoint.CheckpointError (ValueError)  it belongs to another pipeline
    ├── spark.replay.ReplayError (RuntimeError)  another replay of the quarantine is in the way
    ├── spark.running.QueryFailedError (RuntimeError)  a pipeline's query met an error
    ├── spark.java.JavaNotFoundError (RuntimeError)  no Java 17 or 21
    └── spark.maven.JarsError (OSError)  a connector's jars cannot be had
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BudgetError",
    "CorruptPageError",
    "FormatVersionError",
    "HostFolderError",
    "JoinClosedError",
    "JoinFailedError",
    "MasterError",
    "MasterNotFoundError",
    "MissingRowsError",
    "OptionError",
    "RowTooLargeError",
    "SchemaError",
    "SemistreamError",
    "SnapshotNotFoundError",
    "StoreError",
    "UnreadOutputError",
]


class SemistreamError(Exception):
    """The root of all errors of this package."""


class OptionError(SemistreamError, ValueError):
    """An argument has an illegal value; the message names the legal ones."""

    @classmethod
    def unknown(
        cls, what: str, value: object, choices: Iterable[str], default: str = ""
    ) -> OptionError:
        """Build the message for a name that is not among ``choices``.

        Where no choice resembles it, the message names the ``default``, if there is one.

        Examples
        --------
        >>> print(OptionError.unknown("algorithm", "meshjion", ["inlj", "meshjoin"]))
        algorithm 'meshjion' is not known; choose one of: inlj, meshjoin. Did you mean 'meshjoin'?
        """
        names = sorted(choices)
        message = f"{what} {value!r} is not known; choose one of: {', '.join(names)}."
        near = difflib.get_close_matches(str(value), names, n=1)
        if near:
            return cls(f"{message} Did you mean {near[0]!r}?")
        return cls(f"{message} The default is {default!r}." if default else message)


class BudgetError(OptionError):
    """The memory budget is too small; the message gives the least that works."""

    least: int = 0
    """The least that works, in bytes; 0 where it is not known."""


class SchemaError(SemistreamError, TypeError):
    """Columns or types of the stream and the master do not go together."""

    @classmethod
    def missing(cls, side: str, name: str, available: Iterable[str]) -> SchemaError:
        """Build the message for a column that ``side`` does not have."""
        names = list(available)
        message = f"the {side} has no column {name!r}; it has: {', '.join(names)}."
        near = difflib.get_close_matches(name, names, n=1)
        return cls(f"{message} Did you mean {near[0]!r}?" if near else message)


class MasterError(SemistreamError, OSError):
    """A master table cannot be read or written."""


class MasterNotFoundError(MasterError):
    """There is no master table at this path."""


class SnapshotNotFoundError(MasterError):
    """The master table does not have this snapshot, or not any more."""


class FormatVersionError(MasterError):
    """The master table was written in a format that this version does not read."""


class CorruptPageError(MasterError):
    """A page's bytes are not those that were written."""


class StoreError(SemistreamError, OSError):
    """A database cannot be reached, or refuses what it is asked; never a row that is absent."""


class HostFolderError(SemistreamError, OSError):
    """A folder for what joins share on a host cannot be used."""


class MissingRowsError(SemistreamError, LookupError):
    """Stream rows have no master row, and ``on_missing="error"`` was asked for."""


class JoinClosedError(SemistreamError, RuntimeError):
    """The join was closed, and holds nothing any more."""


class JoinFailedError(SemistreamError, RuntimeError):
    """The join met an error in the middle of its work and cannot go on without losing rows."""


class RowTooLargeError(SemistreamError, ValueError):
    """One stream row alone exceeds the room that the window has."""


class UnreadOutputError(SemistreamError, RuntimeError):
    """A batch was offered while the output of an earlier one was not read to its end."""
