"""How examples are had, read and preprocessed."""
