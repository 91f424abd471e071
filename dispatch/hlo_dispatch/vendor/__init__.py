"""Vendor libraries and kernels: discovery, loading, registration, kernel support queries, prepacking calls.

`libraries.py` finds each library and loads it when a compile or an executable first needs it. `kernels.py` hands a
call's attributes to the native planner, `registration.py` gives JAX the handlers, `prepacking.py` splits a call into
a reorder call and a call that reads prepacked weights, `users_kernels.py` loads users' own libraries.
"""
