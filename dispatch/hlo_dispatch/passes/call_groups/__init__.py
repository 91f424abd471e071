"""Call grouping: kernel calls whose values flow among themselves become one call that is waited for once.

`legality.py` finds the groups (no other op may depend on one member and feed another), `live_ranges.py` and
`buffer_assignment.py` give each intermediate value an offset in scratch memory, `in_place_sum.py` turns residual adds
into in-place sum post-ops, `grouping.py` emits the call. With frozen weights this runs after prepacking.
"""
