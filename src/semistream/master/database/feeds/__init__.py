"""Change feeds of databases: which rows have changed, reported while a join runs."""
