"""What a pipeline is: a source, enrichments, column choices, a sink."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from semistream import values
from semistream.errors import OptionError
from semistream.master import Master, open_master
from semistream.master.database.address import has_password, is_url
from semistream.master.place import without_secrets
from semistream.missing import SPLITTING
from semistream.options import EnrichOptions
from semistream.pipeline.file.columns import Columns
from semistream.pipeline.file.ends import Sink, Source
from semistream.pipeline.file.errors import Mark
from semistream.pipeline.file.section import PATH, Conflicts, Section
from semistream.values import IllegalValueError, Kind

__all__ = ["NOW", "Enrichment", "Pipeline", "PipelineFile", "Quarantine", "Waiting"]


NOW = "available now"
"""The trigger that ends when what is there is processed."""
_SHOWN = (
    "holds a password, which plans and messages would show; name a variable of the environment in "
    "password_env, or keep it in PostgreSQL's password file, and a key's in the driver's own file"
)
_STORE = (
    "holds a secret, which plans and messages would show; give it where the store's own tools look "
    "for it, as in AWS_SECRET_ACCESS_KEY, or in a profile of ~/.aws"
)
_INTERVAL = re.compile(r"([0-9]+)\s*(ms|s|m|min|h|d|(?:millisecond|second|minute|hour|day)s?)")
_UNITS = {"ms": "millisecond", "s": "second", "m": "minute", "min": "minute"}
_UNITS |= {"h": "hour", "d": "day"}


def _read_interval(value: object) -> str:
    """Read when batches start: an interval, or ``available now``."""
    plain = str(value).strip().lower().replace("_", " ").replace("-", " ")
    if plain in {"once", NOW}:
        return NOW
    if isinstance(value, str) and (interval := _INTERVAL.fullmatch(plain)):
        unit = _UNITS.get(interval[2]) or interval[2].removesuffix("s")
        return f"{interval[1]} {unit}s"
    near = values.nearest(plain.split()[-1] if plain else "", ["seconds", "minutes", NOW])
    message = (
        "{shown} is not known; give an interval such as 10s or '10 seconds' (ms, s, m, h, d, "
        "or in words), or 'available now' to process what is there and end; without it "
        f"a batch starts when the one before ends.{near}"
    )
    raise IllegalValueError.of(message)


def _read_conf(value: object) -> str:
    """Read a value as Spark's configuration writes it."""
    scalar = values.SCALAR.read(value)
    return str(scalar).lower() if isinstance(scalar, bool) else str(scalar)


Conf = Annotated[Mapping[str, str], values.mapping(Kind(_read_conf, values.SCALAR.schema))]


@dataclass(frozen=True, kw_only=True)
class Enrichment(Section, EnrichOptions):
    """A join with a master table: the options of `enrich`, and what a file must say beside."""

    master: Annotated[str, PATH]
    """The folder of a master table, or the URL of a database."""
    table: Annotated[str, values.TEXT] = ""
    """The table of a database; required there."""
    key: Annotated[tuple[str, ...], values.names()] = ()
    """The key of a database's table; required there."""
    ttl: Annotated[float | None, values.SECONDS] = None
    """How long a row of a database counts; as long as the Spark application if not given."""
    absent_ttl: Annotated[float | None, values.SECONDS] = None
    """How long it counts that a database has no row; a twentieth of ttl if not given."""
    retry: Annotated[float | None, values.SECONDS] = None
    """How long a database that does not answer is tried again; a minute if not given."""
    password_env: Annotated[str, values.TEXT] = ""
    """The environment variable that has the database's password."""
    feed: Annotated[str, values.TEXT] = ""
    """Where changes of a database's rows are announced."""
    surrogate: Annotated[str, values.TEXT] = ""
    """The column of surrogate keys, which new members get; for a left join."""
    dimension: Annotated[str, PATH] = ""
    """The Delta table to which new members are written."""

    @property
    def enrich_options(self) -> EnrichOptions:
        """The options alone, as Spark's tasks take them: they need no pydantic."""
        names = (each.name for each in fields(EnrichOptions))
        return EnrichOptions(**{name: getattr(self, name) for name in names})

    @property
    def splits(self) -> bool:
        """Whether rows without a master row go elsewhere."""
        return self.on_missing in SPLITTING

    @property
    def live(self) -> bool:
        """Whether the master is a table in a database."""
        return is_url(self.master)

    @property
    def database(self) -> dict[str, Any]:
        """The arguments of `open_master` for a table in a database, as far as they are given."""
        known = ("table", "key", "ttl", "absent_ttl", "retry", "password_env", "feed")
        given = {name: getattr(self, name) for name in known}
        return {name: value for name, value in given.items() if value not in ("", (), None)}

    def open(self, copy: str = "") -> Master:
        """Open the master, or a copy of it on this host."""
        if self.live:
            return open_master(self.master, **self.database)
        read = None if self.read == "auto" else self.read
        return open_master(copy or self.master, read=read)

    def patient(self, delay: float) -> "Enrichment":
        """Return the enrichment whose rows are tried again so often.

        A database must then be asked again: that a key is absent may not be held for longer.
        """
        if not self.live or self.on_missing != "wait" or self.absent_ttl is not None:
            return self
        held = delay / 2 if self.ttl is None else min(delay / 2, self.ttl / 20)
        return replace(self, absent_ttl=held)

    def conflicts(self) -> Conflicts:
        """Yield settings that have no use beside others."""
        if self.how in {"semi", "anti"}:
            for given in ("select", "prefix"):
                if getattr(self, given):
                    yield given, f"has no use with how: {self.how}, which gives no master column"
        if self.how != "left":
            for given in ("on_missing", "status", "surrogate"):
                if getattr(self, given):
                    yield given, f"is for how: left; with how: {self.how} all rows are of one kind"
        if self.splits and self.status:
            yield "status", f"has no use with on_missing: {self.on_missing}: rows are parted by it"
        yield from self._of_database() if self.live else self._of_files()
        yield from self._of_members()

    def _of_database(self) -> Conflicts:
        for needed in ("table", "key"):
            if not getattr(self, needed):
                yield needed, "is missing: a database has many; name the one to join with"
        try:
            if has_password(self.master):
                yield "master", _SHOWN
        except OptionError as error:
            yield "master", f"is wrong: {error}"
        if self.localize is not False:
            yield "localize", "is for masters of files"

    def _of_files(self) -> Conflicts:
        if without_secrets(self.master) != self.master:
            yield "master", _STORE
        for given in self.database:
            yield given, "is for a master in a database, as postgresql://user@host/database"

    def _of_members(self) -> Conflicts:
        if self.surrogate and not self.dimension:
            yield "surrogate", "needs the Delta table to which new members are written: dimension"
        if self.dimension and not self.surrogate:
            yield "dimension", "needs the column of its surrogate keys, as surrogate: product_sk"
        missing = self.on_missing
        if self.surrogate and isinstance(missing, str) and missing != "null":
            yield (
                "surrogate",
                f"has no use with on_missing: {missing}; rows without a master row get one, and "
                "nulls or default values beside",
            )
        if self.surrogate and isinstance(missing, dict) and self.surrogate in missing:
            yield "surrogate", "has a default value in on_missing, too; give one of them"


@dataclass(frozen=True, kw_only=True)
class Quarantine(Section):
    """A Delta table for rows without a master row."""

    path: Annotated[str, PATH] = ""
    """The table's folder; PATH.quarantine beside the sink if not given."""


@dataclass(frozen=True, kw_only=True)
class Waiting(Section):
    """A Delta table for rows whose master row may still come."""

    path: Annotated[str, PATH] = ""
    """The table's folder; PATH.waiting beside the sink if not given."""
    delay: Annotated[float, values.SECONDS] = 30.0
    """After how long rows are tried again, in seconds, or as 10m."""
    grace: Annotated[float, values.SECONDS] = 3600.0
    """How long rows wait at most."""
    then: Annotated[str, values.choice(("quarantine", "null"))] = "quarantine"
    """What becomes of rows that have waited in vain."""

    def conflicts(self) -> Conflicts:
        """Yield settings that have no use beside others."""
        if self.delay < 0.1:
            yield "delay", "is too short; the least is 0.1, a tenth of a second"
        if self.grace < self.delay:
            yield "grace", "is less than the delay after which rows are tried again"


@dataclass(frozen=True, kw_only=True)
class PipelineFile(Section):
    """A pipeline of semistream: a source, enrichments, column choices, a sink."""

    name: Annotated[str, values.TEXT] = ""
    """Names the query; the file's name if not given."""
    source: Source
    """Where rows come from."""
    enrich: Annotated[
        tuple[Enrichment, ...],
        BeforeValidator(
            lambda value: value if isinstance(value, list) else [value],
            json_schema_input_type=Enrichment | tuple[Enrichment, ...],
        ),
    ] = ()
    """One enrichment, or a list: each sees the columns of those before it."""
    columns: Columns = field(default_factory=Columns)
    """Which columns reach the sink; all if not given."""
    sink: Sink
    """Where rows go."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Where rows without a master row go, if an enrichment has on_missing: quarantine or wait."""
    waiting: Waiting = field(default_factory=Waiting)
    """Where rows wait, if an enrichment has on_missing: wait."""
    trigger: Annotated[str | None, Kind(_read_interval, values.TEXT.schema)] = None
    """10s, or available now to process what is there and end; the next batch at once by default."""
    checkpoint: Annotated[str, PATH] = ""
    """The folder that says how far the query has come; beside the sink if not given."""
    spark: Conf = field(default_factory=dict)
    """Spark's settings, as spark.sql.shuffle.partitions: 8."""

    @property
    def splits(self) -> bool:
        """Whether rows without a master row go elsewhere than to the sink."""
        return any(step.splits for step in self.enrich)

    @property
    def waits(self) -> bool:
        """Whether rows without a master row wait for it."""
        return any(step.on_missing == "wait" for step in self.enrich)

    def conflicts(self) -> Conflicts:
        """Yield sections that have no use beside others."""
        if self.quarantine != Quarantine() and not self.splits:
            yield "quarantine", "has no use: no enrichment has on_missing: quarantine or wait"
        if self.waiting != Waiting() and not self.waits:
            yield "waiting", "has no use: no enrichment has on_missing: wait"
        named = [step.name for step in self.enrich]
        for i, name in enumerate(named):
            if name and name in named[:i]:
                yield ("enrich", i, "name"), f"{name!r} is given twice"


@dataclass(frozen=True, kw_only=True)
class Pipeline(PipelineFile):
    """A pipeline as its file describes it, with what follows from it filled in."""

    path: Path
    """The file."""
    marks: Mapping[str, Mark] = field(repr=False, compare=False)
    """Where each value is in the file, by its name as ``enrich[0].on``."""

    def conflicts(self) -> Conflicts:
        """Yield nothing: the file was checked, and what is filled in need not have a use."""
        yield from ()

    @property
    def infers(self) -> bool:
        """Whether keys without a master row become members of a dimension."""
        return any(step.surrogate for step in self.enrich)

    @property
    def by_batch(self) -> bool:
        """Whether more is written than the sink, batch by batch."""
        return self.splits or self.infers

    def keeps_single(self, number: int) -> bool:
        """Whether a row must leave an enrichment as one, for another one parts rows."""
        parting = {i for i, step in enumerate(self.enrich) if step.splits} - {number}
        return bool(parting) and self.enrich[number].how in {"inner", "left"}

    def mark(self, where: str) -> Mark:
        """Return the place of a value, or of what is around it if it is not given."""
        while where and where not in self.marks:
            where = where[: max(where.rfind("."), where.rfind("["), 0)]
        return self.marks.get(where, Mark())
