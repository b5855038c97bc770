"""Megatron-LM's functional tests: their rows read, and their runs built again over megatron-core."""
