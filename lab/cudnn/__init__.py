"""How the table of convolution workspaces is distilled from cuDNN, and how the stand-in for libcuda is built."""
