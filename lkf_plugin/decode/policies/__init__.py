"""One file per decoding policy; a file here is found by its registration."""
