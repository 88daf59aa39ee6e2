"""Master tables that live in a database: PostgreSQL, MySQL, MariaDB.

Rows are asked for by lists of keys, as many as wait, and held in the join's cache.
"""
