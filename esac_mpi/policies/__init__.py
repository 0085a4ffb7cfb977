"""What is done with a policy that a run left: shown, tilted, exported, evaluated on ranks. A simulator or torch, inside functions."""
