"""What attention and jump graphs know of syntax, measured on treebanks."""
