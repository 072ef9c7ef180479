"""What a model looked at, drawn."""
