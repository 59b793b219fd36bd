"""What the three modes do on the built-in host, and sampling on either."""
