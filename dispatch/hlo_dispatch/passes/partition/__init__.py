"""A module cut in two, by what is known before it is called: weights that are frozen, and large constants."""
