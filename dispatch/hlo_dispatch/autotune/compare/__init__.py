"""Stock against kernel: timed in turns, the results checked in float64."""
