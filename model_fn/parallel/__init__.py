"""Several devices: strategies, and networks whose layers are on several."""
