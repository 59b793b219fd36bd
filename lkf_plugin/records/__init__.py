"""What was measured: one record format, its identity, and how it is written, read and found."""
