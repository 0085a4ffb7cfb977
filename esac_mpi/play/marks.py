"""Mark a state's fields where declared: `field(metadata=mark(shared=True, part=ADAM))`.

A field without marks is a number, a string, an array or a dataclass of these, equal on every rank.
"""

from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Part:
    """Fields that a warm start takes together, where all of them fit, or not at all."""

    name: str  # in words
    settings: tuple[str, ...] = ()  # fields of the algorithm's table that have to be the same
    common: bool = False  # whether an algorithm that has it, too, means the same by it


ANEW = Part("")  # begins as in any run
ADAM = Part("Adam's moments", ("optimiser", "fitness_shaping"), common=True)
OBSERVATIONS = Part("sums over observations", common=True)
TUNING = Part("the tuned sigma", ("sigma",))
VARIANCE = Part("variance", ("variance_init",), common=True)
DAMP = Part("damp", ("damp", "damp_limit", "damp_tau"), common=True)


@dataclass(frozen=True)
class Mark:
    """What is said of a field of a state, for checkpoints, ranks and warm starts."""

    policy: str = ""  # by which name it is evaluated; the first of a state is the one that counts
    shared: bool = False  # an array that lives once per node and is written in place
    root: bool = False  # rank 0 alone goes on with it
    scratch: bool = False  # a generation writes it before it reads it: no part of a checkpoint
    replay: bool = False  # the room of the learner's replay, with which it is stored
    later: bool = False  # older files lack it
    # a dataclass, whose fields have the names of the state's own in files; of their marks only
    # shared, scratch, root and later count
    inline: bool = False
    # rows (observation, action) of transitions, whose numbers in the run the field so named has,
    # -1 for none: where a replay holds the transitions, a checkpoint has but the numbers, and of
    # what the replay has lost `<name>.lost`
    numbers: str = ""
    # What a warm start takes. Without a part a field is one of its own: a run of the same algorithm
    # takes it. Policies need none: they are taken from any algorithm. Dataclasses, generation,
    # counters and best always begin anew.
    part: Part | None = None
    members: bool = False  # rows [n, d], each of which begins as the policy that counts
    generation: bool = False  # the number of one: it is taken less the source's
    transitions: bool = False  # how many the learner's replay has ever had


def mark(**about: Any) -> dict[str, Mark]:
    """Say what a field is, as `field` takes it. about: fields of Mark."""
    return {"mark": Mark(**about)}


SHARED = mark(shared=True)
SCRATCH = mark(shared=True, scratch=True)


def policy(name: str) -> dict[str, Mark]:
    """Say that a field is a policy, float32 [d], shared by the node."""
    return mark(shared=True, policy=name)


def mark_of(field: Field[Any]) -> Mark:
    """Look up what was said of a field."""
    return field.metadata.get("mark", Mark())


def marked(state: "DataclassInstance | type[DataclassInstance]") -> list[tuple[Field[Any], Mark]]:
    """List the fields of a state, or of its kind, and what each is."""
    return [(f, mark_of(f)) for f in fields(state)]
