"""Docstrings of public names: sections in the order of numpydoc, and no name in them made up."""

import builtins
import inspect
import re

import pymc as pm
import pytest

import pymc_privacy
from pymc_privacy import errors

ORDER = ("Parameters", "Returns", "Raises", "See Also", "Notes", "References", "Examples")
MOST_NEIGHBOURS = 4
ERRORS = vars(errors) | vars(builtins)


def sections(docstring):
    """Return the lines of each section by its title, in the order in which they come."""
    lines = inspect.cleandoc(docstring).splitlines()
    starts = [k for k in range(len(lines) - 1) if lines[k] and re.fullmatch("-{3,}", lines[k + 1])]
    ends = [*starts[1:], len(lines)]
    return [(lines[a], lines[a + 2 : b]) for a, b in zip(starts, ends, strict=True)]


def exists(name):
    """Tell whether a name is there: of PyMC after ``pm.``, else of this package."""
    if name.startswith("az."):
        return True  # not everybody who reads this has ArviZ's plots
    thing, path = (pm, name[3:]) if name.startswith("pm.") else (pymc_privacy, name)
    if thing is pymc_privacy and path.split(".")[0] not in pymc_privacy.__all__:
        return False
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing is not None


def is_error(name):
    """Tell whether a name is that of an exception of this package or of Python."""
    kind = ERRORS.get(name)
    return isinstance(kind, type) and issubclass(kind, Exception)


def faults(docstring):
    """Return what is the matter with a docstring, one sentence for each fault."""
    found = sections(docstring)
    titles = [title for title, _ in found]
    content = dict(found)
    if not {"Raises", "See Also"} & set(titles):
        yield "neither Raises nor See Also"
    if strangers := set(titles) - set(ORDER):
        yield f"unknown sections {sorted(strangers)}"
    if titles != [title for title in ORDER if title in titles]:
        yield f"sections in another order: {titles}"
    heads = {
        title: [line for line in content.get(title, ()) if line and not line.startswith(" ")]
        for title in ("Raises", "See Also", "References")
    }
    for line in heads["Raises"]:
        if not is_error(line):
            yield f"Raises names {line!r}, which is no error"
    for line in heads["See Also"]:
        name, colon, phrase = line.partition(" : ")
        if not exists(name):
            yield f"See Also names {name!r}, which does not exist"
        if not colon or not phrase:
            yield f"See Also says nothing of {name!r}"
    if "See Also" in titles and not 1 <= len(heads["See Also"]) <= MOST_NEIGHBOURS:
        yield f"See Also has {len(heads['See Also'])} names"
    for line in heads["References"]:
        # A label, as of a footnote, would be that of every other docstring on the page.
        if not line.startswith("- "):
            yield f"References has {line!r}, which is no entry of a list"


@pytest.mark.parametrize("name", pymc_privacy.__all__)
def test_a_public_name_says_what_it_refuses_and_what_is_next_to_it(name):
    assert list(faults(getattr(pymc_privacy, name).__doc__)) == []


def test_no_public_name_sees_itself():
    for name in pymc_privacy.__all__:
        neighbours = dict(sections(getattr(pymc_privacy, name).__doc__)).get("See Also", [])
        assert not any(line.startswith(f"{name} :") for line in neighbours), name


GOOD = """Return what was given.

    Parameters
    ----------
    x : float

    Raises
    ------
    ArgumentError
        If it is none.
    TypeError
        If it is a list.

    See Also
    --------
    Laplace : Noise.
    Privatized.from_card : A release
        from a card.
    pm.sample : Draws.
    az.summary : A table.

    References
    ----------
    - Somebody (2000), "A title
      of two lines", A Journal.

    Examples
    --------
    >>> 1
    1
    """


def test_a_good_docstring_has_no_faults():
    assert list(faults(GOOD)) == []
    assert [title for title, _ in sections(GOOD)] == [
        title for title in ORDER if title not in ("Returns", "Notes")
    ]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("ArgumentError", "ArgumentMistake", "no error"),
        ("TypeError", "print", "no error"),
        ("Laplace :", "Laplacian :", "does not exist"),
        ("Laplace :", "errors :", "does not exist"),
        ("Privatized.from_card", "Privatized.from_letter", "does not exist"),
        ("pm.sample", "pm.simple", "does not exist"),
        ("Laplace : Noise.", "Laplace", "says nothing"),
        ("pm.sample : Draws.", "pm.sample : Draws.\n    Gaussian : Noise.", "has 5 names"),
        ("- Somebody", ".. [1] Somebody", "no entry"),
        (
            "See Also\n    --------",
            "Notes\n    -----\n    None.\n\n    See Also\n    --------",
            "order",
        ),
        ("Parameters\n    ----------", "Arguments\n    ---------", "unknown sections"),
    ],
)
def test_a_docstring_that_breaks_a_rule_is_found(old, new, fault):
    broken = GOOD.replace(old, new, 1)
    assert broken != GOOD
    assert any(fault in sentence for sentence in faults(broken))


def test_a_docstring_without_errors_and_neighbours_is_found():
    bare = "Return.\n\nExamples\n--------\n>>> 1\n1\n"
    assert list(faults(bare)) == ["neither Raises nor See Also"]
