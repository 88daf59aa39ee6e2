"""The user's cache folder, folders that processes share, and a description of the machine."""
