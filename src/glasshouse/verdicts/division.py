"""Who holds what of the data, in words: what the terminal says before training, and the page."""

from statistics import median

from glasshouse.errors import one_line
from glasshouse.exhibits import Division, Holder
from glasshouse.spelling import listed

PARTS = {"nonmembers": "non-members", "auxiliary": "auxiliary images", "test": "test images"}
"""The parts that nobody trains on, as a reader knows them."""

NAME = 40
"""Characters of a client's or a class's name in a sentence."""

_WAYS = {"by-client": "as the data name them", "by-user": "by user"}
_DRAWN = {
    "images": "at random",
    "users": "by whole users",
    "within-clients": "within each client",
    "users-within-clients": "within each client, by whole users",
    "whole-clients": "by whole clients",
    "given": "as the data say",
}


def division_lines(division: Division) -> list[str]:
    """Clients and their sizes, what is held out and how, and the balance of classes: a sentence for each."""
    sizes = [holder.members for holder in trained_clients(division)]
    middle = f", median {median(sizes):,.0f}" if len(set(sizes)) > 1 else ""
    return [
        f"{clients_words(division)}{middle}; {sum(sizes):,} in all.",
        f"Held out {held_out_words(division)}: {_others(division)}.",
        _balance(division),
    ]


def clients_words(division: Division) -> str:
    """How many clients there are, where they come from, and what the smallest and the largest hold."""
    trained = trained_clients(division)
    way = _WAYS.get(division.partition) or f"by {division.partition}"
    low, high = (f(trained, key=lambda holder: holder.members) for f in (min, max))
    named = any(holder.name != str(place) for place, holder in enumerate(division.holders))
    ends = [f"{one.members:,}{f' ({one_line(one.name, NAME)})' if named else ''}" for one in (low, high)]
    clients = f"{len(trained):,} client{'s' if len(trained) > 1 else ''} {way}"
    if low.members == high.members:
        return f"{clients}, with {low.members:,} training images{' each' if len(trained) > 1 else ''}"
    return f"{clients}, with {ends[0]} to {ends[1]} training images"


def held_out_words(division: Division) -> str:
    """How the images that nobody trains on were chosen."""
    whole = len(division.holders) - len(trained_clients(division))
    if division.held_out == "whole-clients" and whole:
        return f"as {whole} whole clients of {len(division.holders)}"
    return _DRAWN.get(division.held_out, division.held_out)


def division_facts(division: Division) -> list[tuple[str, str]]:
    """The clients with their sizes and what is held out, a word or two for each."""
    sizes = [holder.members for holder in trained_clients(division)]
    low, high = min(sizes), max(sizes)
    held = f"{low:,} to {high:,} images" if low < high else f"{low:,} images each"
    return [("clients", f"{len(sizes):,} ({held})"), ("held out", held_out_words(division))]


def trained_clients(division: Division) -> list[Holder]:
    """The clients that take part: those with members."""
    return [holder for holder in division.holders if holder.members]


def _others(division: Division) -> str:
    parts = {key: words for key, words in PARTS.items() if key != "test" or not division.official_test}
    held = [f"{_count(division, key):,} {words}" for key, words in parts.items() if _count(division, key)]
    text = listed(held) if held else "nothing"
    if division.official_test:
        text += f"; tested on {_count(division, 'test'):,} official test images"
    if division.unused:
        text += f"; {division.unused:,} images are in no part"
    return text


def _balance(division: Division) -> str:
    counts, total = division.labels["members"], _count(division, "members")
    ranked = sorted(range(len(counts)), key=lambda label: counts[label])
    rare, frequent = (
        f"{class_name(division, label)} ({100 * counts[label] / total:.1f}%)"
        for label in (ranked[0], ranked[-1])
    )
    held = sorted(holder.classes for holder in trained_clients(division))
    many = f"{held[0]} to {held[-1]}" if held[0] < held[-1] else str(held[0])
    each = "a client has" if len(held) > 1 else "the client has"
    spread = f"from {rare} to {frequent}"
    if counts[ranked[0]] == counts[ranked[-1]]:
        spread = f"{100 / len(counts):.1f}% of each"
    return f"Their classes: {spread}; {each} {many} of the {len(counts)}."


def class_name(division: Division, label: int) -> str:
    """A class by its name, where it has one."""
    if label < len(division.classes):
        return one_line(division.classes[label], NAME)
    return f"class {label}"


def _count(division: Division, part: str) -> int:
    return sum(division.labels[part])
