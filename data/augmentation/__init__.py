"""Augmentation of training examples: what `trainer.augment` declares, on whole batches at once."""
