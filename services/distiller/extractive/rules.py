"""What a rule is: a way of saying something, and the slot that it fills."""

import re
from dataclasses import dataclass

from libs.contracts.events import Kind

# Up to the reason, the time or the next thought: what follows is said about the object, not part of its name.
_OBJECT_ENDS = (
    r"(?=\s*(?:$|[.;!…(\"]|,(?! \w+(?: \w+)?(?:,| and\b| or\b| et\b| ou\b))|\s(?:because|since|when|while|as|which|who|that|so|"
    r"for|with|but|though|if|after|before|until|any ?more|anymore|these days|right now|now|at the moment|too|very much|a lot|"
    r"parce|car|quand|lorsque|qui|que|mais|pour|avec|depuis|maintenant|en ce moment|aussi|beaucoup|et (?:je|j['’])|and (?:I|my))\b))"
)
OBJECT = r"(?P<what>[^.;!?…(\"]+?)" + _OBJECT_ENDS
NAME = r"(?-i:[A-ZÀ-Þ])[\w&'’.-]*(?: (?:(?-i:[A-ZÀ-Þ0-9])[\w&'’.-]*|of|the|and|de|du|des|la|et|&))*(?<! of)(?<! the)(?<! and)(?<! de)(?<! et)"
EMAIL = r"(?P<what>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
PHONE = r"(?P<what>\+?\(?\d[\d ().-]{5,}\d)"


@dataclass(frozen=True)
class Rule:
    """`{slug}` in the path is made of the object; with `each`, a list of objects fills a slot each."""

    pattern: re.Pattern[str]
    kind: Kind
    path: str
    about: str
    each: bool = False


def rule(pattern: str, kind: Kind, path: str, about: str, *, each: bool = False) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), kind, path, about, each)
