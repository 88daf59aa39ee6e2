"""Sources and sinks of pipelines on Spark."""
