"""Looking inside: reports, pictures, a viewer, data sets of attention graphs, probes, commands."""
