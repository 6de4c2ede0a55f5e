"""Tells what a declaration's training costs, before anything is trained."""
