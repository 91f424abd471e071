"""What is shown of reports, whoever asked for it."""
