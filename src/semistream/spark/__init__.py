"""All that imports pyspark: the join on Spark, sources, sinks, pipelines."""
