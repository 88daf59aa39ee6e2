"""Pipelines as YAML files: what they say, and what is wrong with them. Nothing here needs Spark."""

from semistream.pipeline.file.model import Pipeline
from semistream.pipeline.file.problems import PipelineError, Problem
from semistream.pipeline.file.read import read_pipeline

__all__ = ["Pipeline", "PipelineError", "Problem", "read_pipeline"]
