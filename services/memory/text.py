"""The one text analysis: an entry and a query that hold the same word get the same term.

Raise TEXT_ANALYSIS_VERSION with every change of what comes out, also one that a new PyStemmer brings.
"""

import re
import unicodedata
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from itertools import pairwise

import Stemmer  # type: ignore[import-not-found]

TEXT_ANALYSIS_VERSION = 1
WITHOUT_STEMMING = "simple"
LANGUAGES = tuple(sorted({*Stemmer.algorithms(), WITHOUT_STEMMING} - {"porter", "dutch_porter"}))

TERM_CHARS = 64

# Vowel signs and points are no letters to `re`, and would cut the words that they stand in.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0dff\u0e01-\u0e3a\u0e40-\u0e4e"
    "\u0e81-\u0ece\u0f35-\u0f39\u0f71-\u0f84\u0f90-\u0fbc\u1000-\u1049\u1050-\u109f\u1780-\u17d3"
)
# One pass, nothing nested: time is linear in the text, whatever the text is.
_TOKEN = re.compile(rf"[\w{_MARKS}]+(?:(?:[-.@+'’]|(?<=\d)[:,/](?=\d))[\w{_MARKS}]+)*")
_CONNECTORS = re.compile(r"[-_.@+'’:,/]+")

# Thai and its neighbours, kana, Han, hangul: words that no space parts, or that carry their particles.
_UNSPACED = re.compile(
    "[\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u3005-\u3007\u3041-\u309f\u30a1-\u30ff"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U000323af]+"
)
# Joiners, direction marks, soft hyphens, variation selectors and tatweel are seen by nobody who types a query.
_INVISIBLE = re.compile("[\u00ad\u061c\u0640\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+")
_ACCENT = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]+")

_CLITIC = re.compile(r"(?:(?<!ca)n['’]t|['’](?:s|t|ll|ve|re|d|m))$")
_QUANTITY = re.compile(r"(\d+(?:[.,:]\d+)*)([^\W\d_]{0,3})")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
_IDENTIFIER = re.compile(r"[\d_@]|[^\W_][^\W_]\.[^\W_][^\W_]")
_LONE_LETTER = re.compile(r"(?<![^\W_])([^\W\d_])[-.](?=[^\W\d_])")
_ORDINALS = frozenset({"st", "nd", "rd", "th"})

_STOP_WORDS = {
    "english": """
        a an the this that these those some any each such
        i me my mine myself we us our ours you your yours yourself he him his himself she her hers herself
        it its itself they them their theirs themselves one
        am is are was were be been being do does did done doing have has had having
        can could will would shall should might must wo dont doesnt didnt cant wont isnt im ive
        what when where which who whom whose why how
        and or but nor not no if so than then as because while though whether
        of in on at by to from for with without about into onto over under between during after before since until
        through there here very too also just only please tell many much
    """,
    "french": """
        le la les l un une des du de d au aux ce cet cette ces c ca cela
        je j me m moi mon ma mes tu t te toi ton ta tes il elle on se s soi son sa ses lui nous notre nos
        vous votre vos ils elles leur leurs eux y en
        suis es est sommes etes sont etait etaient etre ai as a avons avez ont avait avoir fait faire
        qui que qu quoi quel quelle quels quelles quand ou comment pourquoi combien dont lequel laquelle
        et mais ni ne n pas si comme car donc
        dans par pour sur sous avec sans chez vers entre depuis pendant apres avant
        tres trop aussi
    """,
    "german": """
        der die das den dem des ein eine einen einem einer eines kein keine dieser diese dieses
        ich mich mir mein meine du dich dir dein deine er ihn ihm sein seine sie ihr ihre es wir uns unser ihnen man
        sich bin ist sind war waren sein gewesen hat habe haben hatte hatten wird werden wurde kann konnte soll muss
        was wann wo wer wen wem welche welcher welches warum wie wohin woher
        und oder aber nicht wenn als dass ob weil so
        in im an am auf aus bei beim mit nach von vom vor zu zum zur fur uber unter um bis seit durch ohne
        auch noch nur sehr
    """,
    "spanish": """
        el la los las lo un una unos unas del al este esta estos estas ese esa eso
        yo me mi mis tu te ti tus el ella le les se su sus nos nuestro nuestra ellos ellas usted ustedes
        soy es son era eran fue fueron ser esta estan estaba ha han he habia haber hace hizo
        que cuando donde quien quienes cual cuales como cuanto cuantos cuanta porque
        y e o u pero ni no si
        de en a con por para sin sobre entre desde hasta
        muy mas tambien
    """,
}

# Words whose forms a stemmer cannot join: people ask "where did she go" about "she went". The first form is the term.
# Left out where another word is as common: lives, leaves, rose, bit, bore, ground, wound.
_IRREGULAR = {
    "english": """
        become became, begin began begun, bend bent, bind bound, bleed bled, blow blew blown, break broke broken,
        breed bred, bring brought, build built, burn burnt, buy bought, catch caught, choose chose chosen,
        cling clung, come came, creep crept, deal dealt, dig dug, draw drew drawn, dream dreamt,
        drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt, fight fought,
        find found, flee fled, fly flew flown, forbid forbade forbidden, forget forgot forgotten,
        forgive forgave forgiven, freeze froze frozen, get got gotten, give gave given, go went gone,
        grow grew grown, hang hung, hear heard, hide hid hidden, hold held, keep kept, kneel knelt,
        know knew known, lay laid, lead led, lean leant, learn learnt, leave left, light lit, lose lost,
        make made, mean meant, meet met, pay paid, ride rode ridden, ring rang rung, run ran, say said, see saw seen,
        seek sought, sell sold, send sent, sew sewn, shake shook shaken, shine shone, shoot shot,
        show shown, shrink shrank shrunk, sing sang sung, sink sank sunk, sit sat, sleep slept, slide slid,
        speak spoke spoken, spend spent, spin spun, spring sprang sprung, stand stood, steal stole stolen,
        stick stuck, sting stung, strike struck, swear swore sworn, sweep swept, swim swam swum, swing swung,
        take took taken, teach taught, tear tore torn, tell told, think thought, throw threw thrown,
        understand understood, wake woke woken, wear wore worn, weave wove woven, weep wept, win won,
        write wrote written,
        child children, foot feet, goose geese, half halves, knife knives, man men, mouse mice, person people,
        shelf shelves, tooth teeth, wife wives, wolf wolves, woman women
    """,
}

_MONTHS = {
    "english": "January February March April May June July August September October November December",
    "french": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "german": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "spanish": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
}
_WEEKDAYS = {
    "english": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "french": "lundi mardi mercredi jeudi vendredi samedi dimanche",
    "german": "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
    "spanish": "lunes martes miércoles jueves viernes sábado domingo",
}


def analyse(text: str, language: str) -> list[str]:
    """The terms of a text in order, with repeats, for indexing."""
    return [_term(word, language) for word in _words(text, lone_characters=True)]


def query_terms(text: str, language: str) -> list[str]:
    """The distinct terms that a query asks for; stop words count only when there is nothing else."""
    words = list(_words(text, lone_characters=False))
    stop_words = _stop_words(language)
    telling = [word for word in words if _folded(word) not in stop_words]
    return list(dict.fromkeys(_term(word, language) for word in telling or words))


def date_words(event_date: date, language: str) -> str:
    """A date in the forms by which a person asks for it; English where we have no names in the language."""
    months = _MONTHS.get(language, _MONTHS["english"]).split()
    weekdays = _WEEKDAYS.get(language, _WEEKDAYS["english"]).split()
    month, weekday = months[event_date.month - 1], weekdays[event_date.weekday()]
    return f"{event_date.isoformat()} {event_date.day} {month} {event_date.year} {weekday}"


def _words(text: str, *, lone_characters: bool) -> Iterator[str]:
    unspaced = None
    if text.isascii():
        text = text.lower()
    else:
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
        text = unicodedata.normalize("NFKC", text.casefold())
        unspaced = _UNSPACED.search(text)
        text = _UNSPACED.sub(r" \g<0> ", text)
    for token in _TOKEN.findall(text):
        if unspaced and _UNSPACED.match(token):
            yield from _bigrams(token, lone_characters=lone_characters)
        elif token.isalpha():
            yield token[:TERM_CHARS]
        else:
            yield from _parts(token)


def _bigrams(run: str, *, lone_characters: bool) -> Iterator[str]:
    if lone_characters or len(run) == 1:
        yield from run
    for first, second in pairwise(run):
        yield first + second


def _parts(token: str) -> Iterator[str]:
    """What a token that is more than letters is found by: "v2.1" by itself and its parts, "8am" like "8 am"."""
    token = _CLITIC.sub("", token).strip("_")
    if quantity := _QUANTITY.fullmatch(token):
        number, unit = quantity.groups()
        yield (number.replace(",", "") if _THOUSANDS.fullmatch(number) else number)[:TERM_CHARS]
        if unit and unit not in _ORDINALS:
            yield unit
        return
    identifier = _IDENTIFIER.search(token)
    words = [word for word in _CONNECTORS.split(token if identifier else _LONE_LETTER.sub(r"\1", token)) if word]
    if identifier and len(words) > 1:
        yield token[:TERM_CHARS]
    for word in words:
        yield word[:TERM_CHARS]


# Words come again. What is cached says nothing of whose it was.
@lru_cache(maxsize=16_384)
def _term(word: str, language: str) -> str:
    if language == WITHOUT_STEMMING or _IDENTIFIER.search(word):
        return _folded(word)
    base = _irregular(language).get(word, word)
    # Folded last: the stemmers of accented languages know their endings by the accents.
    return _folded(_stemmer(language).stemWord(base))


@lru_cache
def _irregular(language: str) -> dict[str, str]:
    groups = [group.split() for group in _IRREGULAR.get(language, "").split(",")]
    return {form: group[0] for group in groups for form in group[1:]}


@lru_cache
def _stop_words(language: str) -> frozenset[str]:
    return frozenset(_STOP_WORDS.get(language, "").split())


@lru_cache
def _stemmer(language: str) -> Stemmer.Stemmer:
    return Stemmer.Stemmer(language, 0)


def _folded(word: str) -> str:
    if word.isascii():
        return word
    bare = _ACCENT.sub("", unicodedata.normalize("NFD", word))
    return unicodedata.normalize("NFC", bare) or word
