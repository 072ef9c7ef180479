"""What graphs of paragraphs tell, without a model."""
