"""From what a user emits to an event, checked field by field.

    g.emit("NodeProgress", run_id="r", node_id="a", progress=0.5)   ──►  NodeProgress
    g.emit({"event_type": "NodeProgress", "run_id": "r", ...})      ──►  NodeProgress
    g.emit(NodeProgress(run_id="r", ...))                           ──►  NodeProgress, a copy
    g.emit("my_event", loss=0.3)                                    ──►  UserEvent

Types come from the annotations of the classes, so there is no second table to keep. Ranges are not
checked: a NaN is a number, and sinks must be able to take one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Literal, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from soma.errors import InvalidInput, did_you_mean, shown
from soma.events.base import Event, Metric, UserEvent
from soma.events.kinds import EVENT_TYPES
from soma.events.plain import Wrong, came, copy_plain, unwrapped

__all__ = ["check_event", "make_event"]

_SPELLINGS = {name.casefold(): name for name in EVENT_TYPES}
"""Names as they are compared, without case and underscores -> how they are written."""


def make_event(given: object, fields: Mapping[str, Any]) -> Event:
    """Return the event that a user means, made of copies.

    Args:
        given: the name of an event type, or of the user's own; or a dict with an ``event_type``;
            or an event.
        fields: the fields, where ``given`` is a name; otherwise empty. A user's own event takes
            plain data under any name but ``event_type``.

    Raises:
        InvalidInput: ``given`` is none of these, or a field is missing, unknown or of the wrong
            type; the message names event and field, what was expected and what came.
    """
    if isinstance(given, str):
        return _make(unwrapped(given), fields)
    if fields:
        raise InvalidInput(
            f"emit takes fields only after the name of an event, and this is {came(given)}: put "
            f"{', '.join(shown(name) for name in fields)} into it"
        )
    if isinstance(given, Event):
        return check_event(given)
    if isinstance(given, Mapping):
        rest = dict(given)
        name = rest.pop("event_type", None)
        if not isinstance(name, str):
            raise InvalidInput(
                f"A dict is an event where it has an 'event_type', a text, and here it is "
                f"{came(name)}"
            )
        return _make(unwrapped(name), rest)
    raise InvalidInput(
        "emit takes the name of an event and its fields, a dict with an 'event_type', or an event "
        f"of soma.events, not {came(given)}"
    )


def check_event(event: Event) -> Event:
    """Return an equal event whose fields are copies of exactly the types that they should have.

    Raises:
        InvalidInput: a field is of the wrong type, or the class is none of ``soma.events``.
    """
    if isinstance(event, UserEvent):
        return _own(event.name, event.fields)
    kind = type(event)
    if EVENT_TYPES.get(kind.__name__) is not kind:
        raise InvalidInput(
            f"{kind.__name__} is no event type of Soma. Emit an event of your own by its name: "
            'g.emit("my_event", loss=0.3)'
        )
    rules = _rules_of(kind)
    return kind(**_checked(kind.__name__, rules, {name: getattr(event, name) for name in rules}))


def _make(name: str, given: Mapping[str, Any]) -> Event:
    kind = EVENT_TYPES.get(name)
    if kind is None:
        return _own(name, given)
    return kind(**_checked(name, _rules_of(kind), given))


def _own(given_name: object, given: object) -> UserEvent:
    name = unwrapped(given_name)
    if not isinstance(name, str) or not name.strip():
        raise InvalidInput(
            f"The name of an event must be a text that says something, not {came(name)}"
        )
    name = unwrapped(name)
    near = _SPELLINGS.get(name.casefold().replace("_", ""))
    if near is not None:
        raise InvalidInput(
            f"An event of your own cannot be called {shown(name)}: {near!r} is Soma's. Write "
            f"{near!r} if you mean that one, or choose another name"
        )
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{shown(name)}: fields must be a dict, not {came(given)}")
    copied = {}
    for key, value in given.items():
        field = unwrapped(key)
        if not isinstance(field, str):
            raise InvalidInput(
                f"{shown(name)}: the name of a field must be a text, not {came(key)}"
            )
        if field == "event_type":
            raise InvalidInput(
                f"{shown(name)}: a field cannot be called 'event_type', as that holds the name of "
                "the event. Choose another name"
            )
        try:
            copied[field] = copy_plain(value)
        except Wrong as wrong:
            _refuse(shown(name), field, wrong)
    return UserEvent(name, copied)


# ---------------------------------------------------------------- the fields of known types


class _Rule(NamedTuple):
    """What a field takes."""

    expected: str
    convert: Callable[[Any], Any]
    """Return the value as it is kept; raises ``Wrong``."""
    required: bool = True


def _checked(where: str, rules: Mapping[str, _Rule], given: Mapping[Any, Any]) -> dict[str, Any]:
    unknown = [name for name in given if name not in rules]
    if unknown:
        name = unknown[0]
        near = did_you_mean(name, rules) if isinstance(name, str) else did_you_mean("", rules)
        raise InvalidInput(f"{where} has no field {shown(name)}.{near}")
    missing = [
        f"{name} ({rule.expected})"
        for name, rule in rules.items()
        if rule.required and name not in given
    ]
    if missing:
        raise InvalidInput(
            f"{where} needs {' and '.join(missing)}, and {'it' if len(missing) == 1 else 'they'} "
            f"{'was' if len(missing) == 1 else 'were'} not given"
        )
    found = {}
    for name, rule in rules.items():
        if name in given:
            try:
                found[name] = rule.convert(given[name])
            except Wrong as wrong:
                _refuse(where, name, wrong)
            except InvalidInput as error:  # a field of a Metric, which does not know where it is
                raise InvalidInput(f"{where}: {error}") from None
    return found


def _refuse(where: str, field: str, wrong: Wrong) -> NoReturn:
    name = field if field.isidentifier() else shown(field)
    raise InvalidInput(
        f"{where}: {name}{wrong.path} must be {wrong.expected}, not {wrong.came}"
    ) from None


_rules: dict[type[Any], dict[str, _Rule]] = {}


def _rules_of(kind: type[Any]) -> dict[str, _Rule]:
    """Return name -> rule of every field, in order; worked out when the class is first needed."""
    found = _rules.get(kind)
    if found is None:
        found = _rules[kind] = _read_rules(kind)
    return found


def _read_rules(kind: type[Any]) -> dict[str, _Rule]:
    hints = get_type_hints(kind)
    return {
        one.name: _rule_of(hints[one.name])._replace(
            required=one.default is MISSING and one.default_factory is MISSING
        )
        for one in fields(kind)
    }


def _rule_of(hint: Any) -> _Rule:
    if get_origin(hint) is Literal:
        return _one_of(get_args(hint))
    return _RULES[hint]


def _one_of(options: tuple[str, ...]) -> _Rule:
    expected = f"{', '.join(map(repr, options[:-1]))} or {options[-1]!r}"

    def convert(given: Any) -> str:
        value = unwrapped(given)
        for option in options:
            if isinstance(value, str) and value == option:
                return option
        raise Wrong(expected, came(given))

    return _Rule(expected, convert)


def _text(given: Any) -> str:
    value = unwrapped(given)
    if not isinstance(value, str):
        raise Wrong("a text", came(given))
    return value


def _whole(given: Any) -> int:
    value = unwrapped(given)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Wrong("a whole number", came(given))
    return value


def _number(given: Any) -> float:
    value = unwrapped(given)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Wrong("a number", came(given))
    try:
        return float(value)
    except OverflowError:
        raise Wrong("a number that a float holds", "a larger int") from None


def _flag(given: Any) -> bool:
    value = unwrapped(given)
    if not isinstance(value, bool):
        raise Wrong("True or False", came(given))
    return value


def _passes(given: Any) -> tuple[int, ...]:
    if not isinstance(given, list | tuple):
        raise Wrong("a tuple of whole numbers", came(given))
    return tuple(_inside(place, _whole, one) for place, one in enumerate(given))


def _texts(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise Wrong("a tuple of texts", came(given))
    return tuple(_inside(place, _text, one) for place, one in enumerate(given))


def _data(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise Wrong("a dict of plain data", came(given))
    copied: dict[str, Any] = copy_plain(given)
    return copied


def _numbers(given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping):
        raise Wrong("a dict of numbers", came(given))
    found = {}
    for key, value in list(given.items()):
        name = unwrapped(key)
        if not isinstance(name, str):
            raise Wrong("a dict whose keys are texts", f"the key {came(key)}")
        found[name] = _inside(name, _number, value)
    return found


def _inside(step: object, convert: Callable[[Any], Any], value: Any) -> Any:
    try:
        return convert(value)
    except Wrong as wrong:
        raise Wrong(wrong.expected, wrong.came, f"[{shown(step)}]{wrong.path}") from None


def _metric(given: Any) -> Metric:
    rules = _rules_of(Metric)
    if isinstance(given, Metric):
        given = {name: getattr(given, name) for name in rules}
    if not isinstance(given, Mapping):
        raise Wrong("a Metric or a dict of its fields", came(given))
    return Metric(**_checked("metric", rules, given))


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda given: None if given is None else convert(given)


_RULES: dict[Any, _Rule] = {
    str: _Rule("a text", _text),
    int: _Rule("a whole number", _whole),
    float: _Rule("a number", _number),
    bool: _Rule("True or False", _flag),
    bool | None: _Rule("True, False or None", _or_none(_flag)),
    str | None: _Rule("a text or None", _or_none(_text)),
    int | None: _Rule("a whole number or None", _or_none(_whole)),
    float | None: _Rule("a number or None", _or_none(_number)),
    tuple[int, ...]: _Rule("a tuple of whole numbers", _passes),
    tuple[str, ...]: _Rule("a tuple of texts", _texts),
    dict[str, Any]: _Rule("a dict of plain data", _data),
    dict[str, float]: _Rule("a dict of numbers", _numbers),
    Metric: _Rule("a Metric or a dict of its fields", _metric),
}
"""Annotation of a field -> what it takes."""
