"""The options of an enrichment, each once: its default, what a file may give for it, what it does.

`semistream.enrich` takes these arguments, a pipeline's file has these keys, and a job on Spark has
these attributes. A new option needs a field here, an argument there, and the code that uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from semistream.algorithms import algorithms
from semistream.errors import OptionError
from semistream.master.files.reader import READ
from semistream.missing import WORDS, Missing
from semistream.spec import HOW, On, resolve_how
from semistream.values import (
    FLAG,
    FLAG_OR_SIZE,
    KEY,
    SCALAR,
    SIZE,
    TEXT,
    IllegalValueError,
    Kind,
    choice,
    count,
    mapping,
    names,
)

__all__ = ["PARTITION", "TRANSFER", "EnrichOptions"]

PARTITION = ("auto", "key", "none")
TRANSFER = ("auto", "none", "keys", "rows")


def _read_how(value: object) -> str:
    try:
        return resolve_how(str(value))
    except OptionError:
        return str(choice(HOW.values()).read(value))  # which says what is wrong


def _read_missing(value: object) -> str | dict[str, Any]:
    if isinstance(value, dict):
        defaults: dict[str, Any] = mapping(SCALAR).read(value)
        return defaults
    try:
        return str(choice(WORDS).read(value))
    except IllegalValueError as error:
        [(_, message)] = error.problems
        message += " Or give default values, as {price: 0.0}."
        raise IllegalValueError.of(message) from None


_HOW = Kind(_read_how, choice(HOW.values()).schema)
_MISSING = Kind(
    _read_missing, lambda: {"anyOf": [choice(WORDS).schema(), mapping(SCALAR).schema()]}
)


def _option(description: str, **default: Any) -> Any:  # noqa: ANN401 - as dataclasses.field
    """Make a field with a description, which the JSON Schema has, too."""
    return field(metadata={"description": description}, **default)


@dataclass(frozen=True, kw_only=True)
class EnrichOptions:
    """What an enrichment does, whatever its stream and its master."""

    on: Annotated[On, KEY] = _option(  # noqa: RUF009 - it makes a field
        "The key: a column that both sides have, a list of them, or a mapping from the stream's "
        "names to the master's."
    )
    how: Annotated[str, _HOW] = _option(
        '``"inner"``, ``"left"``, ``"semi"`` or ``"anti"``; Spark\'s synonyms are known.',
        default="inner",
    )
    memory: Annotated[int, SIZE] = _option(
        "The budget of an executor, divided among the tasks that it runs at once.",
        default=256 << 20,
    )
    algorithm: Annotated[str, choice(algorithms)] = _option(
        "One of `algorithms`.", default="adaptive"
    )
    select: Annotated[Sequence[str] | None, names()] = _option(
        "The master columns that come out; no other is read. All but the key if not given.",
        default=None,
    )
    prefix: Annotated[str, TEXT] = _option(
        "Put before the names of the master's columns.", default=""
    )
    partition: Annotated[str, choice(PARTITION)] = _option(
        '``"key"`` routes rows so that a page is read by one task, ``"none"`` joins them where '
        'they are, ``"auto"`` chooses, and says why in the log.',
        default="auto",
    )
    transfer: Annotated[str, choice(TRANSFER)] = _option(
        'What passes through Python: ``"none"``, for Spark\'s JVM looks keys up in mapped pages; '
        '``"keys"`` alone, where a row has one answer; or ``"rows"``. ``"auto"`` chooses.',
        default="auto",
    )
    localize: Annotated[bool | int | str, FLAG_OR_SIZE] = _option(
        "Whether hosts keep a copy on their own disk, as object stores need it; a size such as "
        '``"50GB"`` limits the copies of all masters on a host (True is 100 GB).',
        default=False,
    )
    read: Annotated[str, choice(READ)] = _option(
        '``"mapped"`` or ``"direct"``: see `open_master`.', default="mapped"
    )
    name: Annotated[str, TEXT] = _option(
        "Names the enrichment in metrics; the name of the master's folder if not given.",
        default="",
    )
    tasks: Annotated[int | None, count()] = _option(
        "How many tasks an executor runs at once; asked of Spark if not given.", default=None
    )
    check: Annotated[bool, FLAG] = _option(
        "Whether to look, in a small job, if every executor can read the master.", default=True
    )
    on_missing: Annotated[Missing | None, _MISSING] = _option(  # noqa: RUF009 - it makes a field
        'What becomes of the rows of a left join that have no master row: ``"null"`` (they come '
        "out with nulls, the default), a mapping from master columns to default values, "
        '``"drop"``, ``"error"`` (the task fails and names keys), ``"quarantine"`` or ``"wait"`` '
        "(they come out marked, and the writer parts them from the others: `split`). All are "
        "counted.",
        default=None,
    )
    status: Annotated[str, TEXT] = _option(
        'For a left join: the name of a last column that says ``"matched"``, ``"absent"`` (no '
        'master row has this key) or ``"null key"``. With ``"quarantine"`` and ``"wait"`` there is '
        'always one; it is ``"_status"`` if no name is given.',
        default="",
    )
    options: Annotated[Mapping[str, Any], mapping(SCALAR)] = _option(
        "Options of the algorithm.", default_factory=dict
    )

    def __post_init__(self) -> None:
        """Refuse words that no one else looks at before a query starts."""
        for name, words in (("partition", PARTITION), ("transfer", TRANSFER)):
            if getattr(self, name) not in words:
                raise OptionError.unknown(name, getattr(self, name), words)
