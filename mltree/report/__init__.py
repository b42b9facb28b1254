"""What the user sees: a run's progress and result, and the tables of the other commands."""
