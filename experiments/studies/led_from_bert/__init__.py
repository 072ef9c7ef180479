"""A LED whose encoder has the weights of a BERT, for RSTformer on one CPU core."""
