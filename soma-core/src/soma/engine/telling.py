"""What users are told of their own filters: that one changes itself, learns inside, or varies."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from soma.contracts import ActionRecord
from soma.engine.node_keys import NodeKey
from soma.engine.parcels import Parcel
from soma.engine.run import Run
from soma.errors import CacheConfigError
from soma.frame import Encoded
from soma.identity import differences

__all__ = ["changed_itself", "tell_if_different", "tell_learned_inside"]


def changed_itself(
    run: Run, place: int, found: NodeKey, phase: str, stays: Collection[str] = ()
) -> bool:
    """Say whether the call changed the node's own config: then its result is not its key's.

    Args:
        run: the run.
        place: the node.
        found: the key of the call.
        phase: ``"fit"`` or ``"forward"``.
        stays: attributes that it has set in another process and that could not come back.
    """
    then = found.identity
    if then is None:
        return False
    try:
        now = run.identity_of(place)
        public = [one for one in stays if one[:1] != "_"]
        if now is None or (now.config == then.config and not public):
            return False
        changed = [f"attribute {one} is new" for one in public]
        changed += [one for one in differences(then, now) if one.startswith("attribute ")]
    except CacheConfigError as error:  # it gained something that has no hash
        changed = [str(error).partition(": ")[2].partition(". Prefix")[0]]
    id_, label = run.program.ids[place], run.program.traits[place].label
    run.notices.tell(
        "NodeNotKept",
        id_,
        f"{id_!r} ({label}) changes itself during {phase} ({', '.join(changed)}), so this {phase} "
        "is not recorded and runs every time. Return what is learned from fit, or prefix the name "
        "with '_' if results do not depend on it",
        once=(id_, label, phase, tuple(changed)),
    )
    return True


def tell_learned_inside(run: Run, place: int, learned: Any) -> None:
    """Say that a fit has kept what it learned to itself."""
    id_, label = run.program.ids[place], run.program.traits[place].label
    how = "returned None" if learned is None else "returned {} and has set attributes of its own"
    run.notices.tell(
        "NodeNotKept",
        id_,
        f"{id_!r} ({label}): fit {how}, so what it learned cannot be kept, and it runs every time: "
        "return what it learned, or {} if it learns nothing",
        once=(id_, label, how) if run.store is not None else None,
    )


def tell_if_different(
    run: Run, place: int, what: str, before: ActionRecord | None, written: Encoded | Parcel
) -> None:
    """Say that the same action gave something else than was recorded, if it did."""
    if before is None or before.outputs.get(what) == written.digest:
        return
    id_, label = run.program.ids[place], run.program.traits[place].label
    run.notices.tell(
        "NodeNotDeterministic",
        id_,
        f"{id_!r} ({label}) is not deterministic: computed again from the same input, its {what} "
        "is another. The new one replaces the old, and what depends on it is looked up again. Does "
        "it read something outside, such as a file? Make that an attribute; else say "
        "_deterministic = False, or take randomness from rng",
        once=(id_, label, what),
    )
