"""How things are said in French. The first rule that matches a clause wins among those of the same topic."""

from services.distiller.extractive.rules import EMAIL, NAME, OBJECT, PHONE, rule

_I = r"\bj(?:e |['’])"
_I_AM = r"\bje suis(?: (?:actuellement|maintenant|toujours|aussi))?"
_I_HAVE = r"\bj['’]ai(?: (?:aussi|toujours|maintenant))?"
_WE_HAVE = r"\b(?:j['’]ai|nous avons|on a)(?: adopté)?"
_CHANNEL = r"(?:le |les |des |un |par |l['’])?(?:e-?mails?|mails?|courriels?|téléphone|appels?|sms|textos?|whatsapp|lettres?|message)"
_PEOPLE = (
    r"(?:français|française|belge|suisse|canadien|canadienne|québécois|québécoise|anglais|anglaise|britannique|allemand|allemande|"
    r"espagnol|espagnole|italien|italienne|portugais|portugaise|néerlandais|néerlandaise|polonais|polonaise|grec|grecque|turc|turque|"
    r"russe|ukrainien|ukrainienne|marocain|marocaine|algérien|algérienne|tunisien|tunisienne|sénégalais|sénégalaise|ivoirien|ivoirienne|"
    r"américain|américaine|mexicain|mexicaine|brésilien|brésilienne|chinois|chinoise|japonais|japonaise|coréen|coréenne|indien|indienne|"
    r"libanais|libanaise|roumain|roumaine|suédois|suédoise|irlandais|irlandaise)"
)
_LANGUAGE = rf"(?:(?:le |l['’]|un peu |couramment |bien |d['’]|de |un peu d['’]|un peu de )*(?:{_PEOPLE}|arabe|mandarin|hindi|hébreu|catalan|breton|occitan|latin))"
_JOB = (
    r"(?:ingénieure?|développeu(?:r|se)|programmeu(?:r|se)|professeure?|enseignante?|institut(?:eur|rice)|infirmi(?:er|ère)|médecin|chirurgienne?|"
    r"dentiste|avocate?|direct(?:eur|rice)|designer|architecte|écrivaine?|journaliste|cuisini(?:er|ère)|chef|boulang(?:er|ère)|serveu(?:r|se)|"
    r"chauffeur|pilote|agricult(?:eur|rice)|jardini(?:er|ère)|menuisi(?:er|ère)|plombi(?:er|ère)|électricienn?e?|mécanicienn?e?|pompier|polici(?:er|ère)|"
    r"comptable|analyste|consultante?|cherch(?:eur|euse)|scientifique|étudiante?|bibliothécaire|traduct(?:eur|rice)|photographe|musicienn?e?|act(?:eur|rice)|"
    r"danseu(?:r|se)|peintre|coach|thérapeute|psychologue|pharmacienn?e?|vétérinaire|vendeu(?:r|se)|entrepreneu(?:r|se)|technicienn?e?|sage-femme|stagiaire|"
    r"responsable|chef de projet|retraitée?)"
)
_PARTNER = r"(?:femme|mari|compagne|compagnon|conjointe?|fiancée?|copine|copain|épou(?:x|se))"
_KIN = r"(?:mère|maman|père|papa|sœur|soeur|frère|fille|fils|grand-mère|grand-père|tante|oncle|cousine?|nièce|neveu|meilleure? amie?)"
_PET = r"(?:chien|chienne|chiot|chat|chatte|chaton|hamster|lapin|perroquet|cheval|poney|poisson(?: rouge)?|serpent|tortue|cochon d['’]inde|oiseau|poules?)"
_ILLNESS = r"(?:(?:du |le |un )?diabète|(?:de l['’])?asthme|des migraines|(?:de l['’])?épilepsie|(?:de l['’])?arthrose|(?:de l['’])?hypertension|(?:de l['’])?eczéma|mal au dos)"
_NAMED = r"(?:s['’]appelle|se nomme|se prénomme|est|,|,? nommée?|qui s['’]appelle)"
_NOT_LIKED = r"(?!(?:ça|cela|ce|cette|quand|que|comment|ton|ta|tes|votre|vos|bien que)\b)"
_ARTICLE = r"(?:au |aux |à la |à l['’]|à |le |la |les |l['’]|du |de la |de l['’]|des |de |d['’])?"

RULES = (
    rule(r"\bje m['’]appelle (?P<what>" + NAME + r")|\bmon (?:pré)?nom est (?P<also>" + NAME + r")|\bappelle(?:z)?-moi (?P<more>" + NAME + ")", "state", "/identity/name.md", "nom, prénom"),
    rule(rf"{_I_AM} (?P<what>{_PEOPLE})\b", "state", "/identity/nationality.md", "nationalité"),
    rule(r"^je suis (?P<what>(?-i:[A-ZÀ-Þ][a-zà-ÿ'’-]+(?: [A-ZÀ-Þ][a-zà-ÿ'’-]+)?))(?=[.!]?$|, )", "state", "/identity/name.md", "nom, prénom"),
    rule(rf"{_I_HAVE} (?P<what>\d{{1,3}}) ans\b", "state", "/identity/age.md", "âge, quel âge"),
    rule(r"\bmes pronoms sont (?P<what>[\w/]+)", "state", "/identity/pronouns.md", "pronoms"),
    rule(rf"(?:\bje (?:parle|comprends)|\bma langue maternelle est) (?P<what>{_LANGUAGE}(?:(?:,| et|, et) {_LANGUAGE})*)", "item", "/languages/{slug}.md", "langues parlées", each=True),
    rule(r"\bmon anniversaire(?: est|, c['’]est|,)? (?P<what>[^,.;!]*\d[^,.;!]*)|\bje suis née? le (?P<also>[^,.;!]*\d[^,.;!]*)", "state", "/identity/birthday.md", "anniversaire, date de naissance"),
    rule(rf"\bje (?:viens|suis originaire) (?:de |d['’]|du |des )(?P<what>{NAME})|\bje suis née? (?:à|en|au|aux) (?P<also>{NAME})|\bj['’]ai grandi (?:à|en|au|aux) (?P<more>{NAME})", "state", "/identity/origin.md", "origine, d'où vient"),
    rule(r"(?:\bmon (?:nouvel? )?(?:adresse |e-?mail|mail|courriel)|\bmon adresse|\b(?:écri(?:s|vez)|contacte[zr]?)-moi\b).*?" + EMAIL, "state", "/contact/email.md", "contact, adresse e-mail, courriel"),
    rule(r"(?:\bmon (?:nouveau )?(?:numéro|téléphone|portable|mobile)\b|\b(?:appelle[zr]?|joign(?:s|ez)|joindre)-moi\b)[^\d+]*" + PHONE, "state", "/contact/phone.md", "contact, numéro de téléphone"),
    rule(r"\bmon fuseau horaire est (?:celui (?:de |du )|l['’]heure (?:de |du ))?(?P<what>[\w/+: -]+)|\bje suis (?:dans|sur) le fuseau(?: horaire)?(?: de | du | d['’])? ?(?P<also>[\w/+: -]+)|\bje suis à l['’]heure (?:de |du |d['’])(?P<more>[\w/+:-]+)", "state", "/contact/time-zone.md", "fuseau horaire"),
    rule(rf"\bje préfère(?:rais)? (?P<what>(?:être (?:contactée?|appelée?|jointe?)|{_CHANNEL})\b.*)", "state", "/contact/preference.md", "préférences de contact, moyen de contact"),
    rule(rf"(?P<what>\b(?:appelle|appelez|écris|écrivez|contacte|contactez|joins|joignez)-moi\b.*\b(?:plutôt|au lieu|par {_CHANNEL}|uniquement|seulement)\b.*)|(?P<also>\bne m['’](?:appelez|appelle|écrivez|écris) (?:plus|pas|jamais)\b.*)", "state", "/contact/preference.md", "préférences de contact, moyen de contact"),
    rule(rf"\bje (?:ne )?travaille(?: (?:plus|pas|toujours|maintenant|désormais|actuellement))? (?:chez|pour|à la|au|à l['’]|dans) (?P<what>{NAME}|(?:une?|la|le|l['’]) ?[\w' -]+?(?=$|[,.;!]| (?:à|et|depuis|comme|en)\b))|\bj['’]ai (?:rejoint|quitté|commencé chez|été embauchée? (?:chez|par)) (?P<also>(?-i:[A-ZÀ-Þ])[\w&'’.-]*(?: (?-i:[A-ZÀ-Þ])[\w&'’.-]*)*)|\bje suis (?:passée? |de retour |retournée? |revenue? |employée? |partie? )?chez (?P<more>(?-i:[A-ZÀ-Þ])[\w&'’.-]*(?: (?-i:[A-ZÀ-Þ])[\w&'’.-]*)*)", "state", "/job/employer.md", "employeur, travail, entreprise, où travaille"),
    rule(rf"\bje travaille comme {OBJECT}|\bmon (?:métier|poste|travail) est {OBJECT.replace('what', 'also')}|\bje suis devenue? (?P<more>{_JOB}[\w' -]*)", "state", "/job/role.md", "métier, poste, profession"),
    rule(rf"{_I_AM} (?:une? )?(?P<what>{_JOB}\b(?: [\w'’-]+)?)", "state", "/job/role.md", "métier, poste, profession"),
    rule(rf"\b(?:j['’]étudie|je fais des études (?:de |d['’]|en )|je prépare (?:un|une) (?:licence|master|doctorat) (?:de |d['’]|en )) ?{OBJECT}", "state", "/education/studies.md", "études, formation"),
    rule(rf"\b(?:j['’]habite|je vis|je réside|je n['’]habite plus|je ne vis plus|j['’]ai emménagé|je me suis installée?|j['’]ai déménagé|je déménage|je suis (?:de retour|revenue?|retournée?))(?: (?:maintenant|désormais|toujours|actuellement|encore))? (?:à|en|au|aux|près de|dans) (?P<what>{NAME}|(?:une?|la|le|l['’]) ?[\w' -]+?(?=$|[,.;!]| (?:et|depuis|avec)\b))", "state", "/home/city.md", "domicile, ville, où habite"),
    rule(rf"\b(?:ma|mon) {_PARTNER} {_NAMED} ?(?P<what>(?-i:[A-ZÀ-Þ])\w+)", "state", "/family/partner.md", "partenaire, femme, mari, famille"),
    rule(rf"{_I_AM} (?P<what>mariée?|fiancée?|célibataire|divorcée?|veu(?:f|ve)|pacsée?|séparée?)\b|\bje me suis (?P<also>mariée?|fiancée?|pacsée?)\b", "state", "/family/relationship-status.md", "situation familiale, mariage"),
    rule(rf"{_I_HAVE} (?P<what>(?:une?|deux|trois|quatre|cinq|\d) (?:grands? |petits? |petites? |jeunes )?(?:enfants?|fils|filles?|garçons?))\b", "state", "/family/children.md", "enfants, famille"),
    rule(rf"\b(?:ma|mon) (?:grande? |petite? )?(?P<what>{_KIN}) (?:s['’]appelle|se nomme|se prénomme|,) ?(?-i:[A-ZÀ-Þ])\w+", "state", "/family/{slug}.md", "famille, proches"),
    rule(rf"{_WE_HAVE} (?:une?|deux|trois) (?:[\w-]+ )?{_PET}s?(?: [\w-]+)?,? (?:qui s['’]appelle|nommée?|appelée?) (?P<what>(?-i:[A-ZÀ-Þ])\w+)|\b(?:mon|ma|notre) {_PET} (?:s['’]appelle|se nomme) (?P<also>(?-i:[A-ZÀ-Þ])\w+)", "item", "/pets/{slug}.md", "animaux, nom du chien, du chat"),
    rule(rf"{_WE_HAVE} (?P<what>(?:une?|deux|trois|quatre) (?:[\w-]+ )?{_PET}s?)\b(?!.*(?:s['’]appelle|nommé|appelé))", "item", "/pets/{slug}.md", "animaux de compagnie"),
    rule(rf"{_I_AM} (?:très |gravement )?(?:allergique|intolérante?) {_ARTICLE}{OBJECT}|\bje ne peux pas manger {_ARTICLE}{OBJECT.replace('what', 'also')}", "item", "/allergies/{slug}.md", "allergies, aliments à éviter", each=True),
    rule(rf"{_I_HAVE} une allergie {_ARTICLE}{OBJECT}", "item", "/allergies/{slug}.md", "allergies, aliments à éviter", each=True),
    rule(rf"(?:{_I_AM}(?: devenue?)?) (?:strictement )?(?P<what>végane?|végétarien(?:ne)?|pescétarien(?:ne)?|sans gluten|flexitarien(?:ne)?)\b|\bje mange (?P<also>halal|casher|sans gluten)", "state", "/diet/way-of-eating.md", "régime, alimentation"),
    rule(rf"\bje ne (?:mange|bois) (?:pas|plus|jamais) {_ARTICLE}(?P<what>[\w'’-]+(?: [\w-]+)?)", "item", "/diet/{slug}.md", "régime, aliments et boissons évités"),
    rule(rf"{_I_HAVE} (?P<what>{_ILLNESS})\b|\bje souffre (?:de |d['’]|du ){OBJECT.replace('what', 'also')}|{_I_AM} (?P<more>diabétique|asthmatique|épileptique)\b", "item", "/health/{slug}.md", "santé, maladie"),
    rule(r"\bje préfère (?P<what>(?!que\b|ne\b|ça\b)[\w'’ -]+?) (?:plutôt qu['’e]|à|au|aux) ?(?P<than>[\w'’ -]+)|\bje préfère (?P<also>(?!que\b|ne\b|ça\b)[\w'’ -]+?)(?=$|[,.;!]| (?:quand|parce|pour)\b)", "state", "preferred", "préférences"),
    rule(r"\b(?:mon|ma|mes) (?P<topic>[\w-]+(?: [\w-]+)?) (?:préférée?s?|favorite?s?) (?:est|sont|c['’]est|reste) (?P<what>[^.;!]+)", "state", "favourite", "préféré, favori"),
    rule(rf"\bje n['’]aime (?:pas|plus|pas trop|pas du tout) {_NOT_LIKED}{_ARTICLE}{OBJECT}|\bje (?:déteste|ne supporte pas|ne supporte plus|hais) {_NOT_LIKED}{_ARTICLE}{OBJECT.replace('what', 'also')}", "item", "/likes/{slug}.md", "n'aime pas", each=True),
    rule(rf"\bj['’](?:aime|adore|apprécie)(?: (?:bien|beaucoup|vraiment|énormément|toujours|aussi))? {_NOT_LIKED}{_ARTICLE}{OBJECT}|{_I_AM} (?:fan|passionnée?|fou|folle|amateur) (?:de |du |des |d['’])(?:la |l['’])?{OBJECT.replace('what', 'also')}", "item", "/likes/{slug}.md", "aime, goûts", each=True),
    rule(rf"\bje (?:joue|pratique|collectionne) (?:du |de la |de l['’]|des |au |aux |à la |le |la |les |l['’])?{OBJECT}", "item", "/hobbies/{slug}.md", "loisirs, joue"),
)  # fmt: skip

DECISION = r"\b(?:j['’]ai|nous avons|on a) (?:décidé|choisi|convenu)\b"
PLAN = (
    r"\b(?:je vais|nous allons|on va|je compte|je veux|je voudrais|j['’]aimerais|je souhaite|j['’]envisage|je prévois|j['’]ai prévu|j['’]ai l['’]intention|"
    r"je pense \w+r|mon (?:but|rêve|objectif|projet)|j['’]ai (?:un )?rendez-vous)\b|\bje \w+rai\b|\bj['’]\w+rai\b"
)
HAPPENED = (
    r"\b(?:j['’](?:y )?ai|nous avons|on a|j['’]en ai)(?: (?:aussi|enfin|déjà|récemment|juste|bien))? (?:\w+(?:é|i|u|is|it|ert|ait)e?s?)\b"
    r"|\b(?:je|nous|on) (?:me |m['’]|nous |s['’]|se )?(?:suis|sommes|est) \w+(?:é|i|u)e?s?\b|\bje viens (?:de |d['’])\w+r[e]?\b"
)
