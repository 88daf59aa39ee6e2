"""Pipelines as YAML files: what they say, and what is wrong with them. Nothing here needs Spark."""

from typing import TYPE_CHECKING

from semistream.pipeline.file.errors import PipelineError, Problem

if TYPE_CHECKING:
    from semistream.pipeline.file.models import Pipeline
    from semistream.pipeline.file.read import read_pipeline
else:  # they need packages of the extra, which the command line can do without
    from semistream.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Pipeline": "semistream.pipeline.file.models",
            "read_pipeline": "semistream.pipeline.file.read",
        },
    )

__all__ = ["Pipeline", "PipelineError", "Problem", "read_pipeline"]
