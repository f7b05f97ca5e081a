"""A run on disk: state, events, blobs, written so that nothing is lost."""
