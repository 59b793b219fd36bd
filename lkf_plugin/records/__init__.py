"""One record format for everything that is measured."""
