"""Jump self-attention on PyTorch Geometric, for any pretrained transformer."""
