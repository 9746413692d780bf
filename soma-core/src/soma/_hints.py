"""Which package a well-known name comes from, and how to install it.

Core never imports a plugin, but it knows the names of its own family, so that a name whose package
is absent is answered with the line that installs it. Only names that stand here are looked up:
a third party cannot add attributes to ``soma``.
"""

from __future__ import annotations

EXPORTS = {
    "DifferentiableFilter": "soma-torch",
    "Study": "soma-study",
    "Trial": "soma-study",
    "Pbt": "soma-study",
    "Worker": "soma-worker",
    "Coordinator": "soma-worker",
}
"""Public name of ``soma`` -> the distribution that provides it."""

MODULES = {
    "arrow": "soma-arrow",
    "cache": "soma-cache",
    "data": "soma-data",
    "ray": "soma-ray",
    "s3": "soma-s3",
    "strategies": "soma-strategies",
    "study": "soma-study",
    "torch": "soma-torch",
    "worker": "soma-worker",
}
"""``soma.<name>`` as a module -> the distribution that provides it."""

NAMES = {
    ("codec", "torch.Tensor"): "soma-torch",
    ("codec", "arrow.RecordBatch"): "soma-arrow",
    ("executor", "composite"): "soma-torch",
    ("executor", "study"): "soma-study",
    ("executor", "pbt"): "soma-study",
    ("data store", "local"): "soma-data",
    ("data store", "s3"): "soma-s3",
    ("strategy", "data_parallel"): "soma-strategies",
    ("strategy", "federated"): "soma-strategies",
    ("strategy", "model_parallel"): "soma-strategies",
    ("runner", "ws"): "soma-worker",
    ("runner", "wss"): "soma-worker",
    ("runner", "ray"): "soma-ray",
    ("action store", "disk"): "soma-cache",
    ("cache tier", "s3"): "soma-s3",
    ("command", "cache"): "soma-cache",
    ("command", "worker"): "soma-worker",
    ("command", "coordinator"): "soma-worker",
}
"""(kind of thing, its name) -> the distribution that provides it."""

RESERVED = {("codec", "arrow.RecordBatch"): "soma-arrow"}
"""(kind of thing, its name) -> the only distribution that may offer it."""

_EXTRA_OF = {name: name.removeprefix("soma-") for name in {*EXPORTS.values(), *MODULES.values()}}


def install_line(requirement: str) -> str:
    """Return the shell line that installs ``requirement``.

    Members of the family are installed as extras of soma-core (``soma-study`` becomes
    ``pip install "soma-core[study]"``), anything else as it is written. Every install line that
    Soma prints comes from here.
    """
    extra = _EXTRA_OF.get(requirement)
    if extra is not None:
        return f'pip install "soma-core[{extra}]"'
    # Brackets, comparisons and markers mean something to a shell.
    plain = all(character.isalnum() or character in "-_." for character in requirement)
    return f"pip install {requirement}" if plain else f'pip install "{requirement}"'
