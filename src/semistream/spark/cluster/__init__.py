"""The Spark session and its cluster: Java, jars, executors."""
