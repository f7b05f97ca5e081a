"""`loomctl fleet`: put work in, work on it, steer it, look at it."""
