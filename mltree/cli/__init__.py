"""The command line: what each command takes, its help and its options."""
