"""Extraction on GUM: does attention with discourse rank the sentences of a document better?"""
