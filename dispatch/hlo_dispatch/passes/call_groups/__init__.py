"""Call groups, three passes: kernel calls whose values flow among themselves become one call that is waited for once.

`grouping.py` emits the calls of the groups that `legality.py` finds: no other op may depend on one member and feed
another. `in_place_sum.py` turns residual adds into in-place sum post-ops, and `buffer_assignment.py` has intermediate
values share scratch memory. `call_group.py` is what the three edit. With frozen weights they run after prepacking.
"""
