"""Recurrent layers: a counted loop whose body computes an LSTM, GRU or plain recurrent cell, as one kernel call.

`finder.py` looks at every `while` of a flat graph. `products.py` reads the products of state and input with their
weights, `loop_roles.py` what else the loop carries, `masks.py` whether it keeps all of every step. The elementwise
instructions between products and next state are evaluated on samples (`match/elementwise_points.py`), and `cell.py`
says which cell they compute. `call_builder.py` finds the call's operands in front of the loop, `operands.py` joins
those of several gates, and `recurrent_match.py` makes the match. `not_recurrent.py` is how an attempt ends early.
"""
