"""Values of which only some positions are read: the others are not computed."""
