"""Checks of what public functions are given: one line that says what was wanted and came."""
