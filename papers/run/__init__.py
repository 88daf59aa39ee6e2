"""Running the papers' experiments: data, joins, searches, and the records of runs."""
