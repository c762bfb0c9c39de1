"""How a sentence says that something was decided, is planned or has happened, and whether its days are to come."""

import re

from services.distiller.extractive.text import clause_at, is_first_person
from services.distiller.extractive.words import Language

_EN_DECISION = r"\b(?:I|we)(?:['’]ve| have)? (?:decided|chose|chosen|agreed|made up my mind|settled on)\b"
_EN_PLAN = (
    r"\b(?:I|we)(?:['’]m| am|['’]re| are) (?:planning|going to|gonna|hoping|aiming|thinking (?:of|about)|looking into|"
    r"saving|about to|off to|expecting|getting married|moving|relocating|starting|visiting|flying|travell?ing)\b"
    r"|^gonna\b|\b(?:I|we) (?:plan|want|wanna|intend|hope|aim|will|need) (?:to|on)?\b"
    r"|\b(?:I|we)['’]ll\b|\b(?:I|we)['’]d (?:love|like) to\b|\b(?:my|our) (?:goal|dream|plan)s?\b"
)
_EN_HAPPENED = (
    r"\b(?:I|we)(?!['’]ve been \w+ing| have been \w+ing)(?:['’]ve| have)?"
    r"(?: (?:just|also|recently|finally|even|already|actually))?"
    r" (?:\w{3,}ed|went|got|had|met|bought|took|made|saw|gave|won|lost|began|begun|came|found|"
    r"left|ran|read|sold|spent|told|taught|thought|wrote|built|broke|caught|did|done|"
    r"drove|flew|grew|held|put|rode|sang|sent|swam|been|seen)\b"
    r"|^(?:(?:just|recently|finally|also) )?"
    r"(?:\w{3,}ed|went|got|met|bought|saw|took|made|began|won|lost|left|had|did)\b"
)
_FR_DECISION = r"\b(?:j['’]ai|nous avons|on a) (?:décidé|choisi|convenu)\b"
_FR_PLAN = (
    r"\b(?:nous attendons|on attend|je déménage|nous déménageons|on déménage|"
    r"je pars|nous partons|on part|je vais|j['’]ai envie|nous allons|on va|"
    r"je compte|je veux|je voudrais|j['’]aimerais|"
    r"je souhaite|j['’]envisage|je prévois|j['’]ai prévu|j['’]ai l['’]intention|je pense \w+r|"
    r"mon (?:but|rêve|objectif|projet)|j['’]ai (?:un )?rendez-vous)\b"
    r"|\bj(?:e |['’])\w+rai\b"
)
_FR_HAPPENED = (
    r"\b(?:j['’](?:y |en )?ai|nous avons|on a)(?: (?:aussi|enfin|déjà|récemment|juste|bien))?"
    r" \w+(?:é|i|u|is|it|int|ert|ort|ait)e?s?\b"
    r"|\b(?:je|nous|on) (?:me |m['’]|nous |s['’]|se )?(?:suis|sommes|est) \w+(?:é|i|u)e?s?\b"
    r"|\bje viens (?:de |d['’])\w+re?\b"
)

DECIDED = {"english": re.compile(_EN_DECISION, re.IGNORECASE), "french": re.compile(_FR_DECISION, re.IGNORECASE)}
PLANNED = {"english": re.compile(_EN_PLAN, re.IGNORECASE), "french": re.compile(_FR_PLAN, re.IGNORECASE)}
HAPPENED = {"english": re.compile(_EN_HAPPENED, re.IGNORECASE), "french": re.compile(_FR_HAPPENED, re.IGNORECASE)}

_EN_IRREGULAR = (
    r"(?:went|got|met|bought|saw|took|made|gave|won|lost|began|begun|came|found|left|ran|sold|spent|told|taught|thought|"
    r"wrote|built|broke|caught|drove|flew|grew|held|rode|sang|sent|swam|felt|fell|heard|kept|knew|paid|said|slept|spoke|"
    r"stood|wore|woke|ate|drank|chose|became|brought|forgot|understood)"
)
_FR_PARTICIPLE = (
    r"(?!(?:aussi|ici|ainsi|plus|jamais|mais|parfois|trois|huit|du|au|\w*di)\b)\w+(?:é|i|u|is|it|int|ert|ort|ait)e?s?"
)
_FR_GONE = (
    r"(?:allé|arrivé|parti|né|mort|venu|revenu|devenu|entré|rentré|sorti|monté|descendu|tombé|resté|retourné|passé|"
    r"décédé)e?s?"
)
# Beside a past tense these win: `I booked it`, `I was told that it is on 2 May`.
_AHEAD = {
    "english": re.compile(
        r"\b(?:will|won['’]t|going to|gonna|next|tomorrow|upcoming|about to|coming up|booked|scheduled|due|"
        r"tickets? (?:for|to)|plan(?:ned|ning)? (?:to|on|for)|looking forward|is on|been (?:invited|asked))\b|['’]ll\b",
        re.IGNORECASE,
    ),
    "french": re.compile(
        r"\b(?:vais|allons|va|prochaine?|demain|prévue?s?|réservée?s?|billets? pour|doit|dois|devons)\b"
        r"|\b(?:(?:je|il|elle|on|nous|ils|elles|ça) (?:[mtsy]e? |[mts]['’]|en )?|j['’])\w+(?:rai|rons|ra|ront)\b",
        re.IGNORECASE,
    ),
}
# `I'm excited`, `it is held`, `my delayed flight`, `I've got an exam`, `I need`, `I have my eyes checked`: all of now.
_NOT_PAST = re.compile(
    r"(?:\b(?:am|is|are|be|being|an?|the|my|our|your|his|her|their|gets?|getting)|['’](?:m|s|re))"
    rf"(?: (?:now|not|so|very|still|\w+ly))* (?:\w+ed|{_EN_IRREGULAR})\b"
    r"|(?:\b(?:have|has)|['’](?:ve|s)) got\b|\b(?:\w*eed|hundred|shed)\b|\b(?:named|called) (?-i:[A-Z])"
    r"|\b(?:have|has|having|gets?|getting) (?:my|our|the|his|her|their) (?:\w+ ){1,3}\w+ed\b",
    re.IGNORECASE,
)
_PAST = {
    "english": re.compile(
        rf"\b(?:was|were|had|did|wasn['’]t|weren['’]t|didn['’]t|been|(?-i:[a-z]\w+ed)|{_EN_IRREGULAR})\b|^\w+ed\b"
        r"|\b(?:I|we|he|she|they)(?: just| \w+ly)? (?:read|put|cut|hit|hurt|quit)\b|\bsince (?:\d|\w+day|\w+ \d)",
        re.IGNORECASE,
    ),
    "french": re.compile(
        rf"\b(?:ai|as|a|avons|avez|ont)(?: \w+ment| pas| déjà| enfin| bien| tout| aussi)* {_FR_PARTICIPLE}\b"
        rf"|\b(?:suis|es|est|sommes|êtes|sont)(?: \w+ment| déjà| enfin)* {_FR_GONE}\b"
        rf"|(?:(?<!-)\b(?:me|se|nous|vous) |\b[ms]['’])(?:suis|est|sommes|êtes|sont) {_FR_PARTICIPLE}\b"
        r"|\b(?:étai|avai|allai|devai|faisai|pouvai|voulai)(?:s|t|ent)\b|\bvien[st] (?:de |d['’])\w+(?:er|ir|re)\b"
        r"|\bdepuis (?:le \d|\w+di\b)",
        re.IGNORECASE,
    ),
}
_FOR = re.compile(r"\b(?:for|pour)(?: the| le)? $", re.IGNORECASE)


def is_ahead(text: str, at: int, language: Language) -> bool:
    """Whether a day named at `at` is still to come: unless a past tense says that it is over.

    The clause decides that names its own subject; `on Monday, I …` has none, and the whole sentence does.
    """
    if _FOR.search(text[:at]):
        return True
    clause = clause_at(text, at, language)
    told = clause if is_first_person(clause, language) else text
    if _AHEAD[language].search(told):
        return True
    tense = _NOT_PAST.sub(" ", told) if language == "english" else told
    return not _PAST[language].search(tense)
