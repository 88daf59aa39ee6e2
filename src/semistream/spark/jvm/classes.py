"""The Java classes of this folder, compiled by Spark's own compiler for its sessions."""

from __future__ import annotations

import atexit
import hashlib
import io
import logging
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from semistream.errors import SemistreamError
from semistream.master.files.drafts import Draft
from semistream.spark.cluster.context_state import state_of
from semistream.system.user_cache import is_safe, private_cache, user_cache

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["ClassesError", "add_classes", "java_object"]

log = logging.getLogger(__name__)

_SOURCES = sorted(Path(__file__).parent.glob("*.java"))


class ClassesError(SemistreamError):
    """The classes are not available in this session."""


def add_classes(spark: SparkSession) -> None:
    """Load the classes into the session's JVM and its executors, once a context.

    Raises
    ------
    ClassesError
        This version of Spark does not compile them, or they cannot be kept on disk.
    """
    context, state = spark.sparkContext, state_of(spark)
    if state.has_classes:
        return
    try:
        path = _jar(context, spark.version)
        context._jsc.sc().addJar(str(path))  # noqa: SLF001 - the one way
        # Into the loader that all of the driver's threads have from the one that started them: any
        # of them may compile a plan.
        _gateway(context).jvm.PythonSQLUtils.addJarToCurrentClassLoader(str(path))
        java_object(spark, "Lookup", "trial")
    except (Py4JError, PySparkException, OSError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        msg = f"the classes for look-ups in Java cannot be had on Spark {spark.version}: {first}"
        raise ClassesError(msg) from error
    state.has_classes = True


def java_object(spark: SparkSession, name: str, *arguments: object) -> Any:  # noqa: ANN401
    """Return a new object of one of the classes, which were added to the session."""
    jvm = _gateway(spark.sparkContext).jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    constructor = loader.loadClass(f"semistream.{name}").getConstructors()[0]
    values = jvm.java.util.ArrayList()
    for argument in arguments:
        values.add(argument)
    return constructor.newInstance(values.toArray())


def _jar(context: SparkContext, version: str) -> Path:
    """Return the archive with the compiled classes, made once for a version of Spark."""
    sources = {f"semistream/{path.name}": path.read_text() for path in _SOURCES}
    made_of = "\0".join([version, *sources.values()])
    name = f"semistream-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jar"
    folder = private_cache("classes") or _own_folder()
    if not is_safe(folder / name):  # someone else's would run with the rights of this user
        memory = io.BytesIO()
        with zipfile.ZipFile(memory, "w") as archive:
            for file, content in _compile(context, sources).items():
                archive.writestr(file, content)
        with Draft(folder, memory.getvalue()) as draft:
            draft.sync()
            draft.publish(name)
    return folder / name


@cache
def _own_folder() -> Path:
    """Make a folder for this process alone, where others can write to the user's cache."""
    folder = tempfile.mkdtemp(prefix="semistream-classes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log.warning("%s: others can write there; classes are kept in %s", user_cache(), folder)
    return Path(folder)


def _compile(context: SparkContext, sources: dict[str, str]) -> dict[str, bytes]:
    """Compile the classes with Janino, which Spark compiles its own generated code with."""
    codehaus = _gateway(context).jvm.org.codehaus
    resources = codehaus.commons.compiler.util.resource
    compiler, output = (
        codehaus.janino.CompilerFactory().newCompiler(),
        resources.MapResourceCreator(),
    )
    compiler.setClassFileCreator(output)
    texts = _gateway(context).new_array(resources.Resource, len(sources))
    for i, (name, text) in enumerate(sources.items()):
        texts[i] = resources.StringResource(name, text)
    compiler.compile(texts)
    return {name: bytes(content) for name, content in output.getMap().items()}


def _gateway(context: SparkContext) -> Any:  # noqa: ANN401
    return context._gateway  # noqa: SLF001 - the one way to Java
