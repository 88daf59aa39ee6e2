"""The user's cache folder, folders that processes share, and what the machine is."""
