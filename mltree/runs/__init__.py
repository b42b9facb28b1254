"""The parts that analyses share: problem, trees, engines, workspace, model choice."""
