"""The options of an enrichment, each once: its default, what a file may give for it, what it does.

`semistream.enrich` takes these arguments, a pipeline's file has these keys, and a job on Spark has
these attributes. A new option needs a field here, an argument there, and the code that uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from semistream import values
from semistream.algorithms import algorithms
from semistream.errors import OptionError
from semistream.master.files.reader import READ
from semistream.missing import WORDS, Missing
from semistream.spec import HOW, On, resolve_how
from semistream.values import IllegalValueError, Kind, choice

__all__ = ["PARTITION", "TRANSFER", "EnrichOptions"]

PARTITION = ("auto", "key", "none")
TRANSFER = ("auto", "none", "keys", "rows")


def _read_how(value: object) -> str:
    try:
        return resolve_how(str(value))
    except OptionError:
        return str(choice(HOW.values()).read(value))  # which says what is wrong


def _read_missing(value: object) -> Missing:
    if isinstance(value, dict):
        defaults: dict[str, Any] = _SCALARS.read(value)
        return defaults
    try:
        return str(choice(WORDS).read(value))
    except IllegalValueError as error:
        [(_, message)] = error.problems
        message += " Or give default values, as {price: 0.0}."
        raise IllegalValueError.of(message) from None


_SCALARS = values.mapping(values.SCALAR)
_HOW = Kind(_read_how, choice(HOW.values()).schema)
_MISSING = Kind(_read_missing, lambda: {"anyOf": [choice(WORDS).schema(), _SCALARS.schema()]})


@dataclass(frozen=True, kw_only=True)
class EnrichOptions:
    """What an enrichment does, whatever its stream and its master."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}

    on: Annotated[On, values.KEY]
    """The key: a column that both sides have, a list of them, or a mapping from the stream's
    names to the master's."""
    how: Annotated[str, _HOW] = "inner"
    """``"inner"``, ``"left"``, ``"semi"`` or ``"anti"``; Spark's synonyms are known."""
    memory: Annotated[int, values.SIZE] = 256 << 20
    """The budget of an executor, divided among the tasks that it runs at once."""
    algorithm: Annotated[str, choice(algorithms)] = "adaptive"
    """One of `algorithms`."""
    select: Annotated[Sequence[str] | None, values.names()] = None
    """The master columns that come out; no other is read. All but the key if not given."""
    prefix: Annotated[str, values.TEXT] = ""
    """Put before the names of the master's columns."""
    partition: Annotated[str, choice(PARTITION)] = "auto"
    """``"key"`` routes rows so that a page is read by one task, ``"none"`` joins them where they
    are, ``"auto"`` chooses, and says why in the log."""
    transfer: Annotated[str, choice(TRANSFER)] = "auto"
    """What passes through Python: ``"none"``, for Spark's JVM looks keys up in mapped pages;
    ``"keys"`` alone, where a row has one answer; or ``"rows"``. ``"auto"`` chooses."""
    localize: Annotated[bool | int | str, values.FLAG_OR_SIZE] = False
    """Whether hosts keep a copy on their own disk, as object stores need it; a size such as
    ``"50GB"`` limits the copies of all masters on a host (True is 100 GB)."""
    read: Annotated[str, choice(("auto", *READ))] = "auto"
    """``"mapped"`` or ``"direct"``: see `open_master`. ``"auto"`` maps pages that have room in the
    memory of all hosts; others are read directly, so that they do not displace what has."""
    name: Annotated[str, values.TEXT] = ""
    """Names the enrichment in metrics; the name of the master's folder if not given."""
    tasks: Annotated[int | None, values.count()] = None
    """How many tasks an executor runs at once; asked of Spark if not given."""
    check: Annotated[bool, values.FLAG] = True
    """Whether to look, in a small job, if every executor can read the master."""
    on_missing: Annotated[Missing | None, _MISSING] = None
    """What becomes of the rows of a left join that have no master row: ``"null"`` (they come out
    with nulls, the default), a mapping from master columns to default values, ``"drop"``,
    ``"error"`` (the task fails and names keys), ``"quarantine"`` or ``"wait"`` (they come out
    marked, and the writer parts them from the others: `split`). All are counted."""
    status: Annotated[str, values.TEXT] = ""
    """For a left join: the name of a last column that says ``"matched"``, ``"absent"`` (no master
    row has this key) or ``"null key"``. With ``"quarantine"`` and ``"wait"`` there is always
    one; it is ``"_status"`` if no name is given."""
    options: Annotated[Mapping[str, Any], _SCALARS] = field(default_factory=dict)
    """Options of the algorithm."""

    def __post_init__(self) -> None:
        for name, words in (("partition", PARTITION), ("transfer", TRANSFER)):
            if getattr(self, name) not in words:
                raise OptionError.unknown(name, getattr(self, name), words)
