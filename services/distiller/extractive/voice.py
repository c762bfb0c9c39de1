"""Whether a statement is the speaker's own: not reported, quoted, denied, dreamed, planned, conditional or taken back.

What takes the place of something known, or ends it, must be plainly asserted: before it in its clause stand only
openers and words of time. What is said of a slot for the first time may stand deeper in a sentence, but must not come
from somebody else. In doubt nothing is changed; a note may be kept.
"""

import re
from dataclasses import dataclass

from services.distiller.extractive.words import Language


@dataclass(frozen=True)
class Around:
    """The clauses before and after one in its sentence; `later` ends with the next sentence."""

    earlier: tuple[str, ...] = ()
    later: tuple[str, ...] = ()


def _compiled(english: str, french: str) -> dict[Language, re.Pattern[str]]:
    return {"english": re.compile(english, re.IGNORECASE), "french": re.compile(french, re.IGNORECASE)}


EN_SPAN = (
    r"(?:(?:jan|febr)uary|march|april|may|june|july|august|(?:sept|nov|dec)ember|october|spring|summer|"
    r"autumn|fall|winter|"
    r"\w+day|morning|afternoon|evening|night|week|weekend|month|year)"
)
_EN_TIME = (
    rf"(?:(?:earlier|early|late) )?(?:(?:in|on|at|since|during|this|last|the|past|end|beginning|middle|of) )*"
    rf"(?:{EN_SPAN}|\d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {EN_SPAN}|{EN_SPAN} \d{{1,2}}(?:st|nd|rd|th)?)"
    r"|(?:about |over |some )?(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|several|many|a few|a couple of|"
    r"\d+) (?:days?|weeks?|months?|years?) ago"
)
_EN_OPENER = (
    r"(?:just )?so you know|actually|sorry|now|well|ok|okay|so|and|but|also|plus|then|yes|yeah|no|oh|hi|hello|hey|"
    r"there|honestly|anyway|please|finally|(?:un)?fortunately|sadly|luckily|thankfully|recently|lately|currently|nowadays|"
    r"today|yesterday|(?:good|bad|big|great|sad) news|update|correction|by the way|btw|fyi|as you know|"
    r"as I said|for the record|in fact|to be (?:clear|honest|fair)|guess what|(?:a (?:bit|little) )?about me|"
    r"these days|at the moment|right now|first(?: of all)?|personally|in the meantime|after all|"
    r"I(?:['’]m| am) (?:so |very )?(?:happy|glad|proud|pleased|sorry|sad|thrilled|excited|delighted|relieved) to "
    r"(?:say|announce|report|share|tell you)(?: that)?|"
)
_FR_SPAN = (
    r"(?:janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|(?:nov|déc)embre|printemps|"
    r"été|automne|hiver|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche|matin|soir|nuit|semaine|week-?end|mois|an|année)"
)
_FR_TIME = (
    rf"(?:(?:en|au|le|la|ce|cet|cette|depuis|pendant|fin|début|de|du) |l['’])*"
    rf"(?:{_FR_SPAN}|\d{{4}}|\d{{1,2}}(?:er)? {_FR_SPAN})(?: (?:dernière?|passée?|\d{{4}}))?"
    r"|il y a (?:une?|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|plusieurs|quelques|\d+)"
    r" (?:jours?|semaines?|mois|ans?)"
)
_FR_OPENER = (
    r"finalement|désolée?|pardon|maintenant|bon|alors|et|mais|donc|aussi|oui|non|ouais|ah|oh|eh bien|ben|bah|bonjour|"
    r"salut|coucou|au fait|en fait|du coup|désormais|actuellement|(?:mal)?heureusement|hélas|enfin|récemment|"
    r"dernièrement|aujourd['’]hui|avant-hier|hier|(?:bonne|mauvaise|grande) nouvelle|pour info|à vrai dire|"
    r"(?:pour être )?honnête(?:ment)?|comme (?:tu (?:le )?sais|je l['’]ai dit)|en ce moment|ces (?:jours|temps)-ci|"
    r"d['’]ailleurs|pour ma part|moi|perso|personnellement|après tout|"
)
# Possessive: `today` is read in one way only, so that many of them cost no more than their length.
_OPENING = _compiled(
    rf"(?:(?>(?:{_EN_OPENER}{_EN_TIME})\b)[\s,:!–—-]*+)*+",
    rf"(?:(?>(?:{_FR_OPENER}{_FR_TIME})\b)[\s,:!–—-]*+)*+",
)
_EN_SAYS = (
    r"(?:says?|said|saying|tells|told|claim(?:s|ed)|writes|wrote|texted|thinks|thought|believe[sd]|insist(?:s|ed)|"
    r"repl(?:ies|ied)|heard|suspect(?:s|ed)?|assume[sd]?|swears|swore|reckons)"
)
_FR_SAYS = (
    r"(?:dit|disent|disait|écrit|prétend(?:ent|ait|u)?|affirm(?:ent|ait|e|é)|raconte(?:nt)?|raconté|croit|"
    r"croient|croyait|"
    r"pense(?:nt)?|pensait|répond(?:u|ent)?)"
)
# Somebody else says or thinks it.
_REPORTED = _compiled(
    rf"(?<!as I )\b{_EN_SAYS}\b|\b(?:according to|apparently|supposedly|allegedly|rumou?rs?)\b"
    r"|\b(?:they|people|doctors|some) (?:think|claim|believe|tell|write)\b",
    rf"(?<!je l['’]ai )\b{_FR_SAYS}\b|\b(?:selon|d['’]après|paraît|semble|soi-disant|rumeurs?)\b",
)
_SPOKEN_AFTER = _compiled(rf"(?<!I )\b{_EN_SAYS}(?: (?:so|me))?[.!]?$", rf"(?<!je )\b{_FR_SAYS}[.!]?$")
# It is not so: dreamed, played, joked about, denied, or so only on a condition.
_UNTRUE = _compiled(
    r"\b(?:dream(?:s|ed|t|ing)?|imagin\w+|pretend\w*|jok(?:e|es|ed|ing)|kidding|lied (?:that|when)|untrue|nonsense|"
    r"maybe|perhaps|probably|possibly|hopefully|as if|if|unless|whether|doubt(?:s|ed)?|wrongly|mistakenly|"
    r"(?:no(?:body| one)|never|do not|did not|don['’]t|didn['’]t) (?:sa(?:y|ys|id)|claim(?:s|ed)?|tell|told))\b"
    r"|(?:\bnot|n['’]t) (?:\w+ )?(?:true|right|correct)\b|\b(?:is|was|be|['’]s) (?:wrong|false)\b"
    r"|\bin (?:the|my|a|an|this|that|our|his|her) (?:\w+ )?"
    r"(?:play|novel|film|movie|game|story|book|song|scene|sketch)\b",
    r"\b(?:rêv\w+|imagin\w+|blagu\w+|plaisant\w+|mens(?:onge)?s?|faux|à tort|peut-être|probablement|sans doute|"
    r"éventuellement|si|espèr\w+|doutent?|personne ne (?:dit|prétend|pense))\b"
    r"|\b(?:pas|n['’]est) (?:vrai|exact|juste)\b|\bpour rire\b|\bne (?:dis|dites) pas\b"
    r"|\bdans (?:la |le |ma |mon |une? |cette? |l['’])(?:pièce|roman|film|jeu|histoire|livre|chanson|scène|sketch)\b",
)
_NOT_YET = _compiled(
    r"^(?:when|whenever|once|before|until|as soon as|by the time|the day)\b|\b(?:next|tomorrow|soon|someday)\b",
    r"^(?:quand|lorsqu\w+|dès|avant|jusqu\w+|une fois|le jour où|aussitôt)\b|\b(?:prochaine?|demain|bientôt)\b",
)
# What follows an end makes it less than one: `when roasted`, `next month`, `except in spring`.
_BOUNDED = _compiled(
    r"\b(?:when|whenever|once|until|except|next|tomorrow|soon|someday|as (?:much|badly|\w+ly))\b",
    r"\b(?:quand|lorsqu\w+|dès|sauf|jusqu\w+|prochaine?|demain|bientôt|aussi \w+ment)\b",
)
_RETRACTED = _compiled(
    r"\bkidding\b|\b(?:just|only|was|am|['’]m) (?:\w+ )?joking\b|^joking\b"
    r"|\b(?:a|my|bad|stupid|silly) (?:joke|lie|dream)\b"
    r"|(?:\bnot|n['’]t|\bnever) (?:\w+ )?(?:true|right|correct|serious)\b|\b(?:is|was|['’]s) (?:wrong|false|nonsense)\b"
    r"|^(?:or )?(?:so|at least|that['’]s what|that is what) (?:that['’]s what )?(?:he|she|they|my|the|people)\b"
    r"|^I (?:think|guess|hope|believe|suppose|wish)[.!]?$"
    r"|^I still (?:am|do)\b|,? (?:am|do) I[.!]?$|\bfake\b|\bat least officially\b"
    r"|(?:\bnot|\bnever|n['’]t) (?:be )?(?:\w+ )?(?:sure|certain)\b|\ballergic to (?:it|them)\b"
    r"|\b(?:don['’]t|do not) believe (?:it|that|him|her|them)\b"
    r"|\b(?:need(?:s|ed)?|has|have) to be (?:checked|confirmed|tested)\b|\bno,? wait\b|^(?:psych|jk|not)\b[^\w]*$",
    r"\b(?:je )?(?:plaisant\w+|blagu\w+|rigol\w+)|\bpour rire\b|\bc['’](?:est|était) (?:faux|"
    r"une (?:blague|plaisanterie)|un (?:mensonge|rêve))\b|\b(?:pas|n['’]est) (?:vrai|exact|sérieux)\b"
    r"|\bà (?:vérifier|confirmer)\b"
    r"|^(?:c['’]est|du moins|enfin,? c['’]est) ce que? (?!je\b)|^je (?:crois|pense|suppose)[.!]?$|\bn['’]y crois pas\b"
    r"|\bpas (?:\w+ )?(?:sûre?|certaine?)\b",
)
_OWN_SUBJECT = _compiled(r"^(?:I|we)\b", r"^(?:je|j['’]|nous|on)\b")
_PAUSE = re.compile(r";|\s(?:and|but|et|mais)\s", re.IGNORECASE)
_STRAIGHT = '"'


def is_own(before: str, around: Around, language: Language) -> bool:
    """Not another person's words and not denied; what others say about the speaker may be so."""
    reported = _REPORTED[language]
    introduced = any(_ends_with(reported, part) for part in around.earlier) or (
        ":" in before and reported.search(before)
    )
    quoted = _in_quotes(" ".join((*around.earlier, before)))
    return not (introduced or quoted or _UNTRUE[language].search(before))


def is_so(before: str, after: str, around: Around, language: Language) -> bool:
    """Own, neither reported nor bound to a time or a condition by the words around it, and not taken back."""
    doubts = [shape[language] for shape in (_REPORTED, _UNTRUE, _BOUNDED)]
    return (
        is_own(before, around, language)
        and not any(doubt.search(part) for doubt in doubts for part in (before, _near(after)))
        and not any(_is_foreign(part, language) for part in around.earlier)
        and not _is_taken_back(after, around, language)
    )


def is_plain(before: str, after: str, around: Around, language: Language, *, ends: bool) -> bool:
    """Asserted by the speaker as it stands, now, and without a condition."""
    near = _near(after)
    return (
        bool(_OPENING[language].fullmatch(before))
        and is_own(before, around, language)
        and not any(_is_foreign(part, language) for part in around.earlier)
        and not _is_taken_back(after, around, language)
        and not _REPORTED[language].search(near)
        and not _UNTRUE[language].search(near)
        and not (ends and _BOUNDED[language].search(near))
    )


def introduces_speech(text: str) -> bool:
    """`She wrote:` before what she wrote."""
    return text.endswith(":") and any(shape.search(text) for shape in _REPORTED.values())


def _is_taken_back(after: str, around: Around, language: Language) -> bool:
    return bool(_RETRACTED[language].search(after)) or any(
        shape[language].search(part) for shape in (_RETRACTED, _SPOKEN_AFTER) for part in around.later
    )


def _near(after: str) -> str:
    return _PAUSE.split(after, maxsplit=1)[0]


def _is_foreign(clause: str, language: Language) -> bool:
    reported = _REPORTED[language].search(clause) and not _OWN_SUBJECT[language].search(clause)
    return bool(reported or _UNTRUE[language].search(clause) or _NOT_YET[language].search(clause))


def _ends_with(shape: re.Pattern[str], text: str) -> bool:
    return any(found.end() == len(text) for found in shape.finditer(text))


def _in_quotes(text: str) -> bool:
    opened = text.count("«") - text.count("»") + text.count("“") - text.count("”")
    return opened > 0 or text.count(_STRAIGHT) % 2 == 1
