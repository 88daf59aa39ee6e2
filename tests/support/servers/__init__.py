"""The servers, clusters and jars that tests start or fetch."""
