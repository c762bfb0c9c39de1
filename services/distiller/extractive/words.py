"""Which words carry meaning, and slugs made of them."""

import hashlib
import re
import unicodedata
from typing import Literal

import Stemmer  # type: ignore[import-not-found]

Language = Literal["english", "french"]

WORD = re.compile(r"[^\W_]+(?:[-'’.&+@][^\W_]+)*")


def _set_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION_WORDS = {
    "english": _set_of("""
        a about actually after again all almost already also although always am an and any anymore are aren't around as
        at away back be because been before being both but by can can't cannot could couldn't did didn't do does
        doesn't doing don't done down each else ever every for from get gets getting go going gonna got gotta had has
        hasn't have haven't having he he's her here hers herself him himself his how i i'd i'll i'm i've if in into is
        isn't it it's its itself just kind least let let's like longer lot lots many may me might mine more most much
        must my myself n't never no not now of off on once one only onto or other our ours out over own per please
        quite rather really same she she's should since so some still such than that that's the their theirs them then
        there there's these they they're this those though through to too under until up upon us very was wasn't we
        we'd we'll we're we've were what what's when where whether which while who whom whose why will with without
        won't would wouldn't yeah yes yet you you'd you'll you're you've your yours
    """),
    "french": _set_of("""
        a ai aie ainsi alors après as assez au aucun aussi autre autres aux avais avait avant avec avez avoir avons
        beaucoup bien bon c'est car ce ceci cela celle celui ces cet cette chaque chez ci comme d d'un d'une dans de
        depuis des donc dont du déjà elle elles en encore enfin entre es est et eu fait il ils j j'ai j'avais je jusque
        l la le les leur leurs lui là m ma mais me mes moi moins mon même n ne ni nos notre nous on ont ou oui où par
        parce pas pendant peu peut plus plutôt pour pourquoi puis qu qu'elle qu'il quand que quel quelle qui quoi s sa
        sans se sera ses si sommes son sont sous suis sur t ta te tes toi ton toujours tous tout toute toutes tres très
        tu un une va vais vers viens vient voici voilà vos votre vous vraiment y à ça étais était été être
    """),
}

# Words that chat is made of. They are said about anything, so they neither identify a statement nor make it worth more.
WEAK_WORDS = {
    "english": _set_of("""
        absolutely ago agree amazing appreciate awesome beautiful best better bit blessed bring brings catch
        caught certainly chat chatted check chose cool couple crazy day days definitely easy enjoy especially
        everyone everything excited exciting experience fantastic feel feeling feels felt few finally find fun
        glad good grateful great guess guys hang happen happened happy hard hear heard help helped helps hey hi
        hope huge important incredible inspiring it'll joy keep know last lately learn learned life little long
        look looking looks love loved lovely lucky make makes making man mean means moment moments month need
        new nice people perfect pretty proud recently reminder say see seeing seem seems share special start
        stuff super support sure sweet take taking talk talked tell thank thankful thanks thing things think
        thought time times today together totally tough true truly try trying understand use using wanna want
        wanted way week well wonderful words work worth wow year yep yesterday yet
    """),
    "french": _set_of("""
        achat agréable beau belle bonjour chose choses content contente cool espère fois fun gens génial heureuse
        heureux hier jour merci moment moments penser plaisir salut semaine super temps vie vrai
    """),
}

MAX_SLUG = 60
# Latin letters that no accent can be taken from.
_LIGATURES = str.maketrans({"œ": "oe", "æ": "ae", "ß": "ss", "ø": "o", "ł": "l"})


def words(text: str) -> list[str]:
    return [word.lower().replace("’", "'") for word in WORD.findall(text)]


def content_words(text: str, language: Language) -> list[str]:
    """The words that are not grammar, in order, with a French elision taken off."""
    found = []
    for word in words(text):
        bare = re.sub(r"^(?:[cdjlmnst]|qu)'", "", word) if language == "french" else word.removesuffix("'s")
        if len(bare) > 1 or bare.isdigit() or not bare.isascii():
            found.append(bare)
    return [word for word in found if word not in FUNCTION_WORDS[language]]


def strong_words(text: str, language: Language) -> list[str]:
    return [word for word in content_words(text, language) if word not in WEAK_WORDS[language]]


def stems(of: list[str], language: Language) -> frozenset[str]:
    # A stemmer for each call: one object must not serve two threads, and making one takes a microsecond.
    return frozenset(Stemmer.Stemmer(language).stemWords(of))


def slug(parts: list[str], most: int = 4) -> str:
    """`a-z0-9-` made of the first different words; a short hash where nothing of them is latin."""
    chosen = list(dict.fromkeys(parts))[:most]
    plain = unicodedata.normalize("NFKD", " ".join(chosen).lower().translate(_LIGATURES))
    latin = plain.encode("ascii", "ignore").decode()
    readable = re.sub(r"[^a-z0-9]+", "-", latin.replace("'", "")).strip("-")[:MAX_SLUG].strip("-")
    return readable or hashlib.sha256(" ".join(chosen).encode("utf-8", "replace")).hexdigest()[:10]
