"""What is done with a policy that a run left: shown, tilted, exported, evaluated. Simulator and torch inside functions alone."""
