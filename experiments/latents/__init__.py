"""Structures of latents side by side: AgreeText, and text by characters and by words."""
