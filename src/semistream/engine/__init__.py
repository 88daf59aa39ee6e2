"""The engine: a bounded window of stream rows meets pages of the master."""
