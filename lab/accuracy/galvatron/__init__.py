"""Hetu-Galvatron's profiles of single layers: their rows, and the training script that they were recorded with."""
