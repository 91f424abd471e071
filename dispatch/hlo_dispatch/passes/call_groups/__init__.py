"""Runs of kernel calls as one call: which ones join, where what lies between them is kept, the call that holds them."""
