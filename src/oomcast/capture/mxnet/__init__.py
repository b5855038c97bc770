"""MXNet → Trace: a Gluon block or a Symbol, its gradients, and the memory plan that MXNet makes of them."""
