"""What `loomctl plugin install` writes for a host beside the host's own install; pure."""
