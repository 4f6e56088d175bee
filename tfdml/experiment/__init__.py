"""Tables of experiments: rows that are searched on held-out classes, trained and compared."""
