"""JAX → Trace: the jaxpr of a training step, fused, ordered and packed as XLA would."""
