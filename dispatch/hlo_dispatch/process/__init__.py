"""The process and the machine that the pass is a guest of."""
