"""Extraction with discourse: does discourse structure tell which sentences human summaries draw on?"""
