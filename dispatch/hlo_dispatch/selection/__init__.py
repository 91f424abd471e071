"""The policy room: which matches a vendor kernel computes, and why."""
