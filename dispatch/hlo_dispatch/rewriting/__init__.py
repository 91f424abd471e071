"""The rewriting room (`rewrite` is the public function): plan every kernel call, check, then edit, then verify."""
