"""Augmentation of training examples in batches, as `trainer.augment` declares."""
