"""Pipelines as YAML files: what they say, and what is wrong with them. Nothing here needs Spark."""

from semistream.pipeline.model import Pipeline
from semistream.pipeline.problems import PipelineError, Problem
from semistream.pipeline.read import read_pipeline

__all__ = ["Pipeline", "PipelineError", "Problem", "read_pipeline"]
