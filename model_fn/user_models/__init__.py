"""Models of the user's: what they take and put out, what they must bring, and weights that they begin with."""
