"""Host-process isolation: the processor, environment switches, lock files, retained memory, huge pages; native code."""
