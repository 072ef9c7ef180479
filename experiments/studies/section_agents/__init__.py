"""Communicating agents that read a section of an article each: do messages help where each needs the others?"""
