"""Look-ups inside Spark's JVM: Python decides what is read, a few Java classes read it.

Nothing of the stream passes through Python then. The classes are here as source; Spark's own
compiler (Janino) compiles them once for each version of Spark.
"""
