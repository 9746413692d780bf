"""The smallest Soma plugin."""
