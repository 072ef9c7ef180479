"""Drawing of attention, graphs and selected sentences."""
