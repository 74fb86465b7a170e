"""Commands by subject: each turns words into nouns, calls one verb, and prints its result.

Annotations are not postponed here: the parser reads them all at each start, and would have to compile them first.
"""
