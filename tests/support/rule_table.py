"""Tables of mask and bias rules, for Python's own evaluation of a rule."""

import math


class Table:
    """A table in which an index must exist, as in attn."""

    def __init__(self, elements):
        self.elements = elements

    def __getitem__(self, index):
        found = self.elements
        for i in index if isinstance(index, tuple) else (index,):
            if i != math.floor(i) or not 0 <= i < len(found):
                raise IndexError(i)
            found = found[int(i)]
        return found
