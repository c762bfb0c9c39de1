"""How a sentence says that something was decided, is planned or has happened."""

import re

_EN_DECISION = r"\b(?:I|we)(?:['’]ve| have)? (?:decided|chose|chosen|agreed|made up my mind|settled on)\b"
_EN_PLAN = (
    r"\b(?:I|we)(?:['’]m| am|['’]re| are) (?:planning|going to|gonna|hoping|aiming|thinking (?:of|about)|looking into|"
    r"saving|about to|off to|expecting|getting married|moving|starting|visiting|flying|travell?ing)\b"
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
    r"\b(?:nous attendons|je pars|nous partons|je vais|nous allons|on va|je compte|je veux|je voudrais|j['’]aimerais|"
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
