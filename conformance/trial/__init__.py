"""One probe under one variant: repetitions, controls, proofs, and the result that is recorded."""
