"""Building a master table: encode keys, sort out of core, cut pages, publish."""
