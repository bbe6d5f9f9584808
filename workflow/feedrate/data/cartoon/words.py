"""A scene in words: descriptions, entities, questions and quips, all of them true of it."""

from random import Random

from feedrate.data.cartoon.people import LOOKS, POSES
from feedrate.data.cartoon.scene import Scene

_DESCRIPTIONS = (
    "{Figure} {action} {where}{night}, on the {side}. On the {other} there is {thing}.{companion}",
    "{Where}{night}, {figure} {action} beside {thing}. {Figure_again} is on the {side}.{companion}",
    "{Thing} stands on the {other} of {place}{night}. On the {side} {figure} {action}.{companion}",
    "We see {place}{night}. {Figure} {action} on the {side}; {thing} is on the {other}.{companion}",
)
_COMPANIONS = (
    " Between them is {companion}.",
    " {Companion} sits in the middle.",
    " {Companion} is there too.",
)
_UNCANNY = (
    "One does not expect {thing} {where}.",
    "It is odd that {figure} is {where} with {thing}.",
    "Nobody would bring {thing} to {place}.",
    "{Figure} has no business {where}, and neither has {thing}.",
)
_QUESTIONS = (
    "What is {thing} doing {where}?",
    "Why is {figure} {where}?",
    "Who left {thing} with {figure}?",
)
_QUIPS = (
    "I asked for {thing}, but not {where}.",
    "The advertisement said {place}, and nothing about {thing}.",
    "You should see what {figure} did {where} with the last {noun}.",
    "My therapist says I should take the {noun} and spend a year {where}.",
    "{Place} came with {thing}, and the rent is still too high.",
    "Fine, but you are the one who explains the {noun} {where} to your mother.",
    "They told me that {place} was the last place without {thing}.",
    "Every {who} has to start somewhere, and I started {where} with {thing}.",
    "Do not look now, but the {noun} {where} is on the phone for you.",
    "I would move away from {place}, but where else would one park {thing}?",
    "In my day {place} did not have a {noun}, and we were happy.",
    "Careful, that {noun} {where} belongs to the {who}.",
)
"""Each says where it is and with what: a reader of the five choices has two things to look for."""


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _parts(scene: Scene) -> dict[str, str]:
    """What the sentences' braces stand for."""
    words = " ".join(filter(None, (scene.thing_size, scene.paint, scene.thing)))
    animal = scene.figure not in LOOKS
    parts = {
        "figure": _a(scene.figure),
        "figure_again": f"the {scene.figure}",
        "who": scene.figure,
        "action": "looks on" if animal else POSES[scene.pose],
        "thing": _a(words),
        "noun": scene.thing,
        "place": scene.place.name,
        "where": scene.place.where,
        "night": " at night" if scene.night and scene.place.shows_sky else "",
        "side": "left" if scene.left else "right",
        "other": "right" if scene.left else "left",
    }
    return parts | {key.capitalize(): _capital(value) for key, value in parts.items()}


def description(scene: Scene, rng: Random) -> str:
    """Who does what where, with what, and on which side: what the picture shows."""
    parts = _parts(scene) | {"companion": ""}
    if scene.companion:
        small = f"a small {scene.companion}"
        parts["companion"] = rng.choice(_COMPANIONS).format(
            companion=small, Companion=_capital(small)
        )
    return rng.choice(_DESCRIPTIONS).format(**parts)


def uncanny(scene: Scene, rng: Random) -> str:
    """What is odd about the picture."""
    return rng.choice(_UNCANNY).format(**_parts(scene))


def questions(scene: Scene, rng: Random) -> list[str]:
    """Questions that the picture raises."""
    return [rng.choice(_QUESTIONS).format(**_parts(scene))]


def quip(scene: Scene, rng: Random) -> str:
    """A caption such as readers send in."""
    return rng.choice(_QUIPS).format(**_parts(scene))


def entities(scene: Scene) -> list[str]:
    """Names of what is in the picture, the thing first."""
    named = (scene.thing, scene.figure, scene.companion)
    return list(dict.fromkeys(_capital(name) for name in named if name))
