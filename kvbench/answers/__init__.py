"""Answers: the questions that people bring, each as a recipe over sweeps with its table, charts and advice."""
