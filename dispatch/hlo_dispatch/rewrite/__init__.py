"""The rewrite room: plan every kernel call, check, then edit, then verify."""
