"""Drivers of the pipeline: with measurements and a tuner, for one call alone, and with a timer."""
