"""Commands of the discourse stage: parsing a corpus, training and scoring parsers and segmenters."""
