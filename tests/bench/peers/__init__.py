"""What the benchmarks compare with: public code of others, in its own shape."""
