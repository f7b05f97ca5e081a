"""Commands that carry a run on: begin, step, decide, prime, hand on."""
