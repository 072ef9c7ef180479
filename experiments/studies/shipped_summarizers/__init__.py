"""Training and evaluation of the summarizers that come with the suite."""
