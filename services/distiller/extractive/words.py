"""Which words carry meaning, and slugs made of them."""

import hashlib
import re
import unicodedata
from typing import Literal

import Stemmer

Language = Literal["english", "french"]

WORD = re.compile(r"[^\W_]+(?:[-'’.&+@][^\W_]+)*")

FUNCTION_WORDS = {
    "english": frozenset(
        "a about actually after again all almost already also although always am an and any anymore are aren't around as at"
        " away back be because been before being both but by can can't cannot could couldn't did didn't do does doesn't"
        " doing don't done down each else ever every for from get gets getting go going gonna got gotta had has hasn't"
        " have haven't having he he's her here hers herself him himself his how i i'd i'll i'm i've if in into is isn't it"
        " it's its itself just kind least let let's like longer lot lots many may me might mine more most much must my"
        " myself n't never no not now of off on once one only onto or other our ours out over own per please quite rather"
        " really same she she's should since so some still such than that that's the their theirs them then there there's"
        " these they they're this those though through to too under until up upon us very was wasn't we we'd we'll we're"
        " we've were what what's when where whether which while who whom whose why will with without won't would wouldn't"
        " yeah yes yet you you'd you'll you're you've your yours".split()
    ),
    "french": frozenset(
        "a ai aie ainsi alors après as assez au aucun aussi autre autres aux avais avait avant avec avez avoir avons beaucoup"
        " bien bon c'est ça car ce ceci cela celle celui ces cet cette chaque chez ci comme d d'un d'une dans de depuis des"
        " déjà donc dont du elle elles en encore enfin entre es est et étais était été être eu fait il ils j j'ai j'avais je"
        " jusque l la là le les leur leurs lui m ma mais me même mes moi moins mon n ne ni nos notre nous on ont ou où oui"
        " par parce pas pendant peu peut plus plutôt pour pourquoi puis qu qu'il qu'elle quand que quel quelle qui quoi s sa"
        " sans se sera ses si sommes son sont sous suis sur t ta te tes toi ton toujours tous tout toute toutes tres très tu"
        " un une va vais vers voici voilà vos votre vous vraiment y".split()
    ),
}

# Words that chat is made of. They are spoken about anything, so they neither identify a statement nor make it worth keeping.
WEAK_WORDS = frozenset(
    "absolutely agree amazing appreciate awesome beautiful best better bit blessed bring brings certainly cool couple crazy"
    " day days definitely easy enjoy especially exciting excited everyone everything fantastic feel feeling feels felt find"
    " fun glad good grateful great guess guys happen happened happy hard hear heard help helped helps hey hi hope important"
    " incredible inspiring it'll keep know learn learned life little long look looking looks love loved lovely lucky make"
    " makes making man mean means moment moments need new nice people perfect pretty proud reminder say see seeing seem"
    " seems share special start stuff super support sure sweet take taking talk tell thank thankful thanks thing things"
    " think thought time times together tough truly try trying understand use using wanna want wanted way well wonderful"
    " words work worth wow yep yet check recently lately finally last week month year today yesterday ago experience joy"
    " achat agréable beau belle bonjour chose choses content contente espère fois gens génial heureuse heureux hier jour"
    " merci penser plaisir salut semaine super temps vie vrai".split()
)

_STEMMERS = {"english": Stemmer.Stemmer("english"), "french": Stemmer.Stemmer("french")}
MAX_SLUG = 60


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
    return [word for word in content_words(text, language) if word not in WEAK_WORDS]


def stem(word: str, language: Language) -> str:
    return _STEMMERS[language].stemWord(word)


def stems(text: str, language: Language) -> frozenset[str]:
    return frozenset(stem(word, language) for word in content_words(text, language))


def slug(parts: list[str], most: int = 4) -> str:
    """`a-z0-9-` made of the first different words; a short hash where nothing of them is latin."""
    chosen = list(dict.fromkeys(parts))[:most]
    latin = unicodedata.normalize("NFKD", " ".join(chosen)).encode("ascii", "ignore").decode().lower()
    readable = re.sub(r"[^a-z0-9]+", "-", latin.replace("'", "")).strip("-")[:MAX_SLUG].strip("-")
    return readable or hashlib.sha256(" ".join(chosen).encode("utf-8", "replace")).hexdigest()[:10]
