"""What a rule is: ways of saying one thing, and the slot that it fills."""

import re
from dataclasses import dataclass

from libs.contracts.events import Kind

# Up to the reason, the time or the next thought: what follows is said about the object, not part of its name.
_OBJECT_ENDS = (
    r"(?=\s*(?:$|[.;!…(\"]|,(?! \w+(?: \w+)?(?:,| and\b| or\b| et\b| ou\b))"
    r"|\s(?:because|since|when|while|as|which|who|that|so|for|with|but|though|if|after|before|until|these days|"
    r"any ?more|right now|now|at the moment|too|very much|a lot|and (?:I|my)|"
    r"parce|car|quand|lorsque|qui|que|mais|pour|avec|depuis|maintenant|en ce moment|aussi|beaucoup|et (?:je|j['’]))\b))"
)
OBJECT = r"(?P<what>[^.;!?…(\"]+?)" + _OBJECT_ENDS
NAME = (
    r"(?P<what>(?-i:[A-ZÀ-Þ])[\w&'’.-]*(?: (?:(?-i:[A-ZÀ-Þ0-9])[\w&'’.-]*|"
    r"(?:of|the|and|de|du|des|la|et|&)(?= (?-i:[A-ZÀ-Þ0-9]|of\b|the\b|la\b))))*)"
)
ONE_NAME = r"(?P<what>(?-i:[A-ZÀ-Þ])[\w'’-]+)"
EMAIL = r"(?P<what>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
# Slots whose names are made of more than one object, or of what is known.
MOVED, PREFERRED, FAVOURITE = "moved", "preferred", "favourite"
CONTACT_PREFERENCE = "/contact/preference.md"
PHONE = r"[^\d+]*(?P<what>\+?\(?\d[\d ().-]{5,}\d)"


@dataclass(frozen=True)
class Rule:
    """`{slug}` in the path is made of the object; with `each`, a list of objects fills a slot each.

    With `ends`, what is said of the object is that it no longer holds.
    """

    kind: Kind
    path: str
    about: str
    patterns: tuple[re.Pattern[str], ...]
    each: bool
    ends: bool
    topic: str


def rule(kind: Kind, path: str, about: str, *patterns: str, each: bool = False, ends: bool = False) -> Rule:
    compiled = tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)
    return Rule(kind, path, about, compiled, each, ends, _topic(path))


def _topic(path: str) -> str:
    """Of the rules of one topic only one speaks about a clause."""
    if path == PREFERRED:
        return CONTACT_PREFERENCE
    return path.rsplit("/", 1)[0] if path.startswith(("/likes", "/allergies", "/pets")) else path
