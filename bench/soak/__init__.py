"""Soak test: processes compile, run and drop programs for minutes against one store, while some of them are killed."""
