"""Tests that need an accelerator; each is skipped with the reason where it is not."""
