"""Keras 3 and TensorFlow 2 → Trace: the graph of a training step, followed as TensorFlow's executor would run it."""
