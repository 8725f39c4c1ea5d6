"""Trees on GPUs, by Triton."""
