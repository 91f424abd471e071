"""What follows an anchor and can be computed with it."""
