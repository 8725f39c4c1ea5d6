"""The laboratory: what is run, stored, compared, and shown."""
