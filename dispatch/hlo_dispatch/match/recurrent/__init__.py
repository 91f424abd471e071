"""Recurrent layers: a counted loop whose body computes an LSTM, GRU or plain recurrent cell, as one kernel call.

`finder.py` looks at every `while` of a flat graph. `products.py` reads the products of state and input with their
weights, `loop_roles.py` what else the loop carries, `masks.py` whether it keeps all of every step.
`elementwise_points.py` evaluates what lies between products and next state at sample points, and `cell.py` says which
cell that computes. `call_builder.py` finds the call's operands in front of the loop, `operands.py` joins those of
several gates, and `recurrent_match.py` makes the match. `not_recurrent.py` is how an attempt ends early.
"""
