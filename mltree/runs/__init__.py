"""The parts that analyses share: problem, trees, placement on devices, workspace, model choice."""
