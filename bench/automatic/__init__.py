"""Benchmarks of automatic freezing: the check of a call's arguments, loops of training, and Keras' `predict`.

`pytrees.py` times the check over pytrees of several kinds, `training.py` loops whose arguments change in each call,
`predict.py` and `predict_worker.py` a program of Keras with no change, and with a frozen model.
"""
