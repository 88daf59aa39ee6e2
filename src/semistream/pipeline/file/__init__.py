"""The pipeline file: reading, checking, describing. Nothing here needs Spark."""
