"""What may be written down of a filter: its constructor arguments, and nothing that is secret.

    class Fetch(Filter):
        _secret = ("token",)
        def __init__(self, token, page): ...

    arguments_of(Fetch("abc-123", page=2)) ──► {"token": "***", "page": 2}

A secret shows up in places where nobody put it, such as the message of an exception. So the values
themselves are known to a ``Mask``, which takes them out of every text that it is given, also where
they stand there escaped or cut.
"""

from __future__ import annotations
