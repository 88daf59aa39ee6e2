"""Look-ups inside Spark's JVM: Python decides what is read, a few Java classes read it.

Nothing of the stream passes through Python then. The classes stand here as source; Spark has a
compiler (Janino), which makes them once for each version of Spark.
"""
