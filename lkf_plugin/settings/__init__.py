"""Types of settings, and what to say of a wrong one."""
