"""Which query may attend to which key, and which tokens of a sequence are of this process."""
