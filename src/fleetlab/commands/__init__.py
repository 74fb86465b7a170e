"""The desks of the reception: commands by subject, each with words to nouns, one verb, print.

Annotations are not postponed here: the parser reads them all at each start, and would have to compile them first.
"""
