"""This folder is on the path of all tests: helpers that several rooms share live beside this file."""
