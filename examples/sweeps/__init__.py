"""Sweeps: what they are, how their runs are done, what they show; each ``NAME.toml`` is one."""
