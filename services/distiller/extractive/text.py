"""Lines become sentences and clauses: what can be a statement at all, and in which language it is said."""

import re

from services.distiller.extractive.voice import introduces_speech
from services.distiller.extractive.words import FUNCTION_WORDS, Language, words

MAX_STATEMENT = 300
# Rules look back and forth in a sentence, so that their time grows with its square; people's sentences are shorter.
_MAX_SENTENCE = 600
_MAX_LINE = 12_000

_OWN_MEMORY = re.compile(r"<memory\b[^<>]*>.*?(?:</memory>|\Z)", re.IGNORECASE | re.DOTALL)
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ASIDE = re.compile(r"\[[^\[\]]*\]")
_QUOTED = re.compile(r"(?m)^\s*>.*$")
_IN_QUOTES = re.compile(r"[\"“«][^\"“”«»]*[\"”»]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"”»)]*\s+|\n+")
_ABBREVIATION_CHARS = 8
_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Mme|Mlle|vs|etc|e\.g|i\.e|a\.m|p\.m)\.|\b[A-Z]\.)$")

# A greeting or a thank-you may be followed by a name; after `and` or `so` a word can be a day, and stays.
_FILLERS = re.compile(
    r"^(?:(?:hey|hi|hello|thanks|thank you|thx|congrats|wow|bonjour|salut|coucou|merci)\b"
    r"(?: (?!(?:I|my|we|our|je|mon|ma|nous)\b)[\w'’]+){0,2}?\s*[,!.:–—-]+\s*"
    r"|(?:yeah|yep|yup|yes|no|nope|nah|well|oh|ah|aww?|hmm|so|ok|okay|anyway|actually|honestly|btw|by the way|"
    r"you know|haha|lol|sure|true|bon|sorry|and|but|also|plus|oui|non|ouais|eh bien|ben|bah|alors|donc|au fait|"
    r"en fait|finalement|d'accord|et|mais)\b\s*[,!.:–—-]+\s*"
    r"|(?:and|but|so|oh|et|mais|donc)\s+(?=(?:I|my|we|je|mon|ma|nous)\b|j['’]))+",
    re.IGNORECASE,
)
_SPEECH = re.compile(r"[\"“«]\s*(?:I|I['’]\w+|my|we|je|j['’]\w+|nous)\b[^\"”»]*[\"”»]", re.IGNORECASE)
_ELISIONS = ("j'", "l'", "d'", "m'", "n'", "c'", "s'", "qu'")
_CLAUSE_BREAK = {
    "english": re.compile(
        r"\s*;\s+|\s+[–—-]+\s+(?=(?:I|my|we|our)\b)"
        r"|,?\s+(?:and|but|so)\s+(?=(?:I|I['’](?:m|ve|d|ll)|my|we|our)\b)|,\s+(?=(?:I|I['’](?:m|ve)|my)\b)",
        re.IGNORECASE,
    ),
    "french": re.compile(
        r"\s*;\s+|\s+[–—-]+\s+(?=(?:je|j['’]|mon|ma|mes|nous)\b)"
        r"|,?\s+(?:et|mais|donc)\s+(?=(?:je\b|j['’]|mon\b|ma\b|mes\b|nous\b|on\b))|,\s+(?=(?:je\b|j['’]|mon\b|ma\b|mes\b))",
        re.IGNORECASE,
    ),
}
_FIRST_PERSON = {
    "english": re.compile(
        r"\b(?:I|my|mine|me|we|our|us|myself|I['’](?:m|ve|d|ll)|we['’](?:re|ve|d|ll))\b"
        r"|^(?:(?:just|recently|finally|also) )?"
        r"(?:gonna|been|went|got|had|met|joined|started|finished|bought|visited|took|made|saw|tried)\b",
        re.IGNORECASE,
    ),
    "french": re.compile(
        r"\b(?:je|me|mon|ma|mes|moi|nous|notre|nos)\b|\b[jm]['’]"
        r"|\bon (?!(?:ne )?(?:dit|peut|doit|sait|voit|appelle|parle|pourrait|devrait|dirait)\b)"
        r"|\b(?:appelez|appelle|écrivez|écris|contactez)-moi\b",
        re.IGNORECASE,
    ),
}
# `If I were`, `I wish`, `I hope you`: said in the first person, but nothing that is so. `I want pizza tonight`, `my
# code throws an error`: so only while the conversation lasts.
_UNREAL = {
    "english": re.compile(
        r"^(?:if|imagine|suppose|maybe|perhaps|let['’]?s|let me|who|why|which|how|remember when|"
        r"please (?!(?:don['’]t |do not |never |stop )?(?:call|phone|ring|text|e-?mail|contact|write|message)))\b"
        r"|^(?:what|where|when)(?:['’]s)? (?:if|is|are|was|were|do|does|did|should|can|could|would|will)\b"
        r"|^(?:do|does|did|is|are|was|were|can|could|would|should|will|have|has|had|am)(?:n['’]t)?"
        r" (?:I|you|we|he|she|they|it|my|your|there|this|that|the)\b"
        r"|^(?:write|help|tell|show|give|explain|find|create|draft|summari[sz]e|translate|remind|send|book|schedule|"
        r"generate|list|search|fix|add|remove|change|update|open|recommend|suggest|describe|compare|convert|calculate|"
        r"rewrite|review|analy[sz]e) (?!(?:to )?me (?:at|on|by|via|instead|only|rather)\b)"
        r"|\bI(?:['’]d like| want| need| would like) (?:you|to know|to ask|(?:some |your )?help|a hand|advice)\b"
        r"|\bI(?:['’]m| am) (?:asking|wondering|not sure)\b|\bI have (?:a|another|one) question\b"
        r"|^I need (?:an?|some|the)\b"
        r"|\bI (?:don['’]t|do not|didn['’]t|never) (?:think|believe|know|remember|say|said)\b"
        r"|\b(?:if|whether|unless|in case) I\b"
        r"|\bI(?:['’]d| would| could| should| might) have\b|\bI wish\b|\bif I (?:were|was|had)\b"
        r"|\bI (?:hope|bet|guess|think|suppose|imagine|know|see|wonder|heard|hear|can (?:imagine|see|tell)) (?:that )?"
        r"(?:you|your|he|she|they|it)\b"
        r"|\bI (?:think|guess|suppose) I(?:['’]d| want| might| could| should| would)\b"
        r"|\bI(?: really| just)? (?:want|wanna|fancy|crave|feel like)\b"
        r".*\b(?:tonight|today|right now|this (?:morning|afternoon|evening))\b"
        r"|\b(?:throws?|throwing|raises?|returns?|gives?|shows?|gets?|getting)(?: me)? (?:an?|the|this|that)"
        r" (?:\w+ ){0,2}(?:error|exception|warning)\b|\bon line \d+\b"
        r"|\b(?:doesn['’]t|does not|won['’]t) (?:compile|build|boot|load)\b"
        r"|\bI['’]m (?:(?:so|really|very|super) )?(?:glad|happy|sorry|proud|excited|stoked|thrilled)(?: to hear)?"
        r" (?:that |for |of )?(?:you|it|he|she|they)\b",
        re.IGNORECASE,
    ),
    "french": re.compile(
        r"^(?:si|imagine|imaginons|supposons|peut-être|peux-tu|pouvez-vous|pourriez-vous|est-ce|qui|que|quoi|où|comment|"
        r"pourquoi|quel(?:le)?s?|combien)\b"
        r"|^(?:écri|aide|di|donne|montre|explique|rédige|tradui|résume|trouve|corrige|génère|liste)[sz]?\b"
        r"(?!-moi (?:plutôt|par|au))"
        r"|\bje (?:veux|voudrais) (?:savoir|que (?:tu|vous))\b|\bj['’]aimerais (?:savoir|que)\b"
        r"|\bj['’]ai (?:une question|besoin d['’]aide)\b|\bje (?:ne )?(?:pense|crois|sais) pas\b"
        r"|\bje (?:pense|crois) que je (?:veux|voudrais|pourrais|devrais)\b"
        r"|\b(?:j['’]ai envie|je (?:veux|voudrais))\b.*\b(?:ce soir|aujourd['’]hui|maintenant|ce (?:matin|midi))\b"
        r"|\b(?:lève|renvoie|retourne|affiche|donne) (?:une|cette|l['’]) ?(?:\w+ )?(?:erreur|exception)\b"
        r"|\bà la ligne \d+\b|\bne (?:compile|charge) (?:pas|plus)\b"
        r"|\bsi j['’](?:étais|avais)\b|\bj['’](?:aurais|espère que (?:tu|vous))\b|\bje (?:serais|voudrais que)\b"
        r"|\bje suis (?:très |si |vraiment )?(?:contente?|désolée?|heureu(?:x|se)|fi(?:er|ère))"
        r" (?:pour|que|de) (?:toi|vous|tu)\b",
        re.IGNORECASE,
    ),
}


def language_of(text: str) -> Language:
    """French where more of the grammar words are French than English; everything else is read as English."""
    said = words(text)
    french = sum(word in FUNCTION_WORDS["french"] or word.startswith(_ELISIONS) for word in said)
    english = sum(word in FUNCTION_WORDS["english"] for word in said)
    return "french" if french > english else "english"


def spoken(text: str) -> str:
    """What the speaker says: our own memory blocks, code, quoted lines and passages, and bracketed asides are not."""
    for block in (_OWN_MEMORY, _CODE, _QUOTED):
        text = block.sub("\n", text)
    text = _IN_QUOTES.sub(lambda quoted: " " if _SENTENCE_END.search(quoted[0][1:-1]) else quoted[0], text)
    return _ASIDE.sub(" ", text).strip()[:_MAX_LINE]


def sentences(text: str) -> list[str]:
    """Sentences with fillers taken off."""
    whole: list[str] = []
    for piece in _SENTENCE_END.split(text):
        # Only the end of what stands tells; and beyond its limit nothing more of a sentence is read.
        if whole and len(whole[-1]) < _MAX_SENTENCE and _goes_on(whole[-1]):
            whole[-1] = f"{whole[-1]} {piece}"
        elif piece.strip():
            whole.append(piece)
    plain = (without_fillers(" ".join(_UNPRINTABLE.sub(" ", piece).split())[:_MAX_SENTENCE]) for piece in whole)
    return [sentence for sentence in plain if sentence]


def _goes_on(piece: str) -> bool:
    return bool(_ABBREVIATION.search(piece[-_ABBREVIATION_CHARS:])) or introduces_speech(piece)


def without_fillers(sentence: str) -> str:
    return _FILLERS.sub("", sentence).strip(" ,;:-–—")


def is_question(sentence: str) -> bool:
    return sentence.rstrip("\"'”») ").endswith("?")


def clauses(sentence: str, language: Language) -> list[str]:
    return [clause for clause in (part.strip(" ,;") for part in _CLAUSE_BREAK[language].split(sentence)) if clause]


def clause_at(sentence: str, position: int, language: Language) -> str:
    """The clause that holds a position of a sentence."""
    breaks = list(_CLAUSE_BREAK[language].finditer(sentence))
    start = max((found.end() for found in breaks if found.end() <= position), default=0)
    end = min((found.start() for found in breaks if found.start() >= position), default=len(sentence))
    return sentence[start:end]


def is_unreal(sentence: str, language: Language) -> bool:
    """A wish, a request, a condition or a guess about others."""
    return bool(_UNREAL[language].search(sentence))


def is_first_person(sentence: str, language: Language) -> bool:
    """Said by the speaker about the speaker; in quotation marks somebody else may speak."""
    return bool(_FIRST_PERSON[language].search(_SPEECH.sub(" ", sentence)))


def as_statement(text: str) -> str:
    """One line of at most `MAX_STATEMENT` characters that begins and ends like a sentence; cut between words."""
    text = text.strip(" ,;:-–—")
    if len(text) > MAX_STATEMENT:
        text = text[: MAX_STATEMENT - 1].rsplit(" ", 1)[0].rstrip(" ,;:-–—") + "…"
    ended = text if text[-1:] in '.!…"”»)' else f"{text}."
    return ended[:1].upper() + ended[1:]
