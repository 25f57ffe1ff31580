"""The conformance items that `conformance.plugin` fills: one per probe, variant and backend."""
