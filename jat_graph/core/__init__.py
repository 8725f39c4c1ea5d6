"""What all parts share: checks of input, masks, fields of settings, files, compiling."""
