"""The Keras paths: `fit`, and a loop of our own."""
