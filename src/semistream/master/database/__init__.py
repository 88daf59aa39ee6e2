"""Master tables that live in a database: PostgreSQL, MySQL, MariaDB.

Rows are asked for by lists of keys, as many as wait, and held in the join's cache.
"""

from semistream.master.database.address import has_password, is_url
from semistream.master.database.master import DatabaseMaster
from semistream.master.database.opened import open_database

__all__ = ["DatabaseMaster", "has_password", "is_url", "open_database"]
