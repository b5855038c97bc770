"""ONNX → Trace: a model file's graph, run as ONNX Runtime would, or trained through its gradients."""
