"""The paper's tables: which cells there are, at which scale, and how they are filled."""
