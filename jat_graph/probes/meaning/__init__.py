"""What a model knows of the senses of words."""
