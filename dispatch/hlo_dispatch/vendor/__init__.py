"""Vendor kernels: which there are, how their libraries are found, what they answer."""
