"""How things are said in French. Of the rules of one slot the first that matches a clause speaks."""

from services.distiller.extractive.rules import (
    CONTACT_PREFERENCE,
    EMAIL,
    FAVOURITE,
    NAME,
    OBJECT,
    ONE_NAME,
    PHONE,
    PREFERRED,
    rule,
)

_I_AM = r"\bje suis(?: (?:actuellement|maintenant|toujours|aussi))?"
_I_HAVE = r"\bj['’]ai(?: (?:aussi|toujours|maintenant))?"
_WE_HAVE = r"\b(?:j['’]ai|nous avons|on a)(?: adopté)?"
_NOW = r"(?: (?:toujours|maintenant|désormais|actuellement|encore))?"
_I_AM_NO_LONGER = r"\bje ne suis plus"
_PASTIME = (
    r"(?P<what>[\w'’ -]+?)"
    r"(?=$|[,.;!]| (?:après|avec|car|ce|cette|dans|depuis|en|hier|il|l['’]|la semaine|parce|pour)\b)"
)
_AGAIN = r"(?:de nouveau|à nouveau)"
_CHANNEL = (
    r"(?:le |les |des |un |par |l['’])?(?:e-?mails?|mails?|courriels?|téléphone|appels?|sms|textos?|whatsapp|lettres?|"
    r"message)"
)
_PEOPLE = (
    r"(?:français|belge|suisse|canadien|québécois|anglais|britannique|allemand|espagnol|italien|portugais|néerlandais|"
    r"polonais|grec|turc|russe|ukrainien|marocain|algérien|tunisien|sénégalais|ivoirien|américain|mexicain|brésilien|"
    r"chinois|japonais|coréen|indien|libanais|roumain|suédois|norvégien|danois|finlandais|irlandais)(?:ne|que|e)?"
)
_LANGUAGE = (
    r"(?:(?:le |l['’]|un peu |couramment |bien |d['’]|de |un peu d['’]|un peu de )*"
    rf"(?:{_PEOPLE}|arabe|mandarin|hindi|hébreu|catalan|breton|occitan|latin))"
)
_JOB = (
    r"(?:ingénieure?|développeu(?:r|se)|programmeu(?:r|se)|professeure?|enseignante?|institut(?:eur|rice)|"
    r"infirmi(?:er|ère)|médecin|chirurgienne?|dentiste|avocate?|direct(?:eur|rice)|designer|architecte|écrivaine?|"
    r"journaliste|cuisini(?:er|ère)|chef|boulang(?:er|ère)|serveu(?:r|se)|chauffeur|pilote|agricult(?:eur|rice)|"
    r"jardini(?:er|ère)|menuisi(?:er|ère)|plombi(?:er|ère)|électricien(?:ne)?|mécanicien(?:ne)?|pompi(?:er|ère)|"
    r"polici(?:er|ère)|comptable|analyste|consultante?|cherch(?:eur|euse)|scientifique|étudiante?|bibliothécaire|"
    r"traduct(?:eur|rice)|photographe|musicien(?:ne)?|act(?:eur|rice)|danseu(?:r|se)|peintre|coach|thérapeute|"
    r"psychologue|pharmacien(?:ne)?|vétérinaire|vendeu(?:r|se)|entrepreneu(?:r|se)|technicien(?:ne)?|sage-femme|"
    r"stagiaire|responsable|retraitée?)"
)
_PARTNER = r"(?:femme|mari|compagne|compagnon|conjointe?|fiancée?|copine|copain|épou(?:x|se))"
_KIN = (
    r"(?:mère|maman|père|papa|sœur|soeur|frère|fille|fils|grand-mère|grand-père|tante|oncle|cousine?|nièce|neveu|"
    r"meilleure? amie?)"
)
_PET = (
    r"(?:chien|chienne|chiot|chat|chatte|chaton|hamster|lapin|perroquet|cheval|poney|poisson(?: rouge)?|serpent|tortue|"
    r"cochon d['’]inde|oiseau|poule)s?"
)
_ILLNESS = (
    r"(?:(?:du |le |un )?diabète|(?:de l['’])?asthme|des migraines|(?:de l['’])?épilepsie|(?:de l['’])?arthrose|"
    r"(?:de l['’])?hypertension|(?:de l['’])?eczéma|mal au dos)"
)
_DIED = r"(?: (?:est|vient de|a été))? (?:morte?|décédée?|mourir|piquée?|euthanasiée?)\b"
_EATS = r"(?:végane?|végétarien(?:ne)?|pescétarien(?:ne)?|flexitarien(?:ne)?)"
_ILL = r"(?:diabétique|asthmatique|épileptique)"
# `J'aime quand tu …`, `je déteste ça`: nothing is named that could be liked.
_NAMED = (
    r"(?!(?:ça|cela|ce|cette|ces|cet|quand|que|comment|ton|ta|tes|votre|vos|bien|beaucoup|vraiment|toujours|te|vous)\b)"
)
# `À rien`, `à tout`: no slot is named.
_NOT_ALL = r"(?!(?:rien|tout|tous|toutes|quoi que ce soit|quelque chose|ça|cela)\b)"
_ARTICLE = r"(?:au |aux |à la |à l['’]|à |le |la |les |l['’]|du |de la |de l['’]|des |de |d['’])?"
_HERE = r"(?:une?|la|le|l['’]) ?[\w' -]+?(?=$|[,.;!]| (?:à|avec|comme|depuis|en|et)\b)"
_IN = r"(?:à|en|au|aux|près de|dans)(?! (?:une?|le|la|les|l['’]) ?(?:monde|époque|société|passé|peur|attente)\b)"
_FROM = r"(?: (?:de |d['’])[\w'’-]+)?"
_WORK = r"(?:travail|emploi|poste|boulot|job)"
_FROM_WORK = r"\b(?: (?:chez|de chez|de|par|à|dans|comme|d['’])(?: la| l['’])? ?(?P<what>(?!cause\b|suite\b)[\w'’-]+))?"
_FIRM_ENDS = r"(?=$|[,.;!]| (?:après|avec|ce|cette|comme|depuis|en|hier|il|la semaine|le|l['’])\b)"
_AT = r"(?:chez|pour|à la|au|à|à l['’]|dans)"
_NO_STAY = r"(?!.*\b(?:ce soir|ce week-?end|cette nuit|aujourd['’]hui|demain|jusqu)\b)"
_PLACE_OR_FIRM = rf"(?:{NAME}|(?P<some>{_HERE}))"

STARTS = r"\b(?:je|j|me|m|mon|ma|mes|nous|notre|on|appel(?:le|ez)|écri(?:s|vez)|contacte[rz]?|joi(?:ns|gnez)|ne)\b"
RULES = (
    rule(
        "state",
        "/identity/name.md",
        "nom, prénom",
        rf"\bje m['’]appelle {NAME}",
        rf"\bmon (?:pré)?nom est {NAME}",
        rf"\bappelle(?:z)?-moi {NAME}",
        rf"^je suis (?!{_PEOPLE}\b){ONE_NAME}(?: [A-ZÀ-Þ][\w-]+)?(?=[.!]?$|, )",
    ),
    rule("state", "/identity/nationality.md", "nationalité", _I_AM + rf" (?P<what>{_PEOPLE})\b"),
    rule(
        "state",
        "/identity/age.md",
        "âge, quel âge",
        rf"(?:{_I_HAVE}(?: eu)?|\bje viens d['’]avoir|\bje fête mes) (?P<what>\d{{1,3}}) ans\b",
    ),
    rule("state", "/identity/pronouns.md", "pronoms", r"\bmes pronoms sont (?P<what>[\w/]+)"),
    rule(
        "item",
        "/languages/{slug}.md",
        "langues parlées",
        r"(?:\bje (?:parle|comprends)|\bma langue maternelle est)"
        rf" (?P<what>{_LANGUAGE}(?:(?:,| et|, et) {_LANGUAGE})*)\b",
        each=True,
    ),
    rule(
        "state",
        "/identity/birthday.md",
        "anniversaire, date de naissance",
        r"\bmon anniversaire(?: est|, c['’]est|,)? (?P<what>[^.;!]*\d[^.;!]*)",
        r"\bje suis née? le (?P<what>[^.;!]*\d[^.;!]*)",
    ),
    rule(
        "state",
        "/identity/origin.md",
        "origine, d'où vient",
        rf"\bje (?:viens|suis originaire) (?:de |d['’]|du |des ){NAME}",
        rf"\bje suis née? (?:à|en|au|aux) {NAME}",
        rf"\bj['’]ai grandi (?:à|en|au|aux) {NAME}",
    ),
    rule(
        "state",
        "/contact/email.md",
        "contact, adresse e-mail, courriel",
        r"\bmon (?:nouvel(?:le)? )?(?:adresse|e-?mail|mail|courriel)\b.*?" + EMAIL,
        r"\b(?:écri(?:s|vez)|contacte[zr]?)-moi\b.*?" + EMAIL,
        r"\b(?:me |m['’])(?:contacter|écrire|joindre)\b.*?" + EMAIL,
    ),
    rule(
        "state",
        "/contact/phone.md",
        "contact, numéro de téléphone",
        r"\bmon (?:nouveau )?(?:numéro|téléphone|portable|mobile)\b" + PHONE,
        r"\b(?:appelle[zr]?|joi(?:ns|gnez))-moi\b" + PHONE,
        r"\b(?:me |m['’])(?:contacter|appeler|joindre)\b" + PHONE,
    ),
    rule(
        "state",
        "/contact/time-zone.md",
        "fuseau horaire",
        r"\bmon fuseau horaire est (?:celui (?:de |du )|l['’]heure (?:de |du ))?(?P<what>[\w/+: -]+)",
        r"\bje suis (?:dans|sur) le fuseau(?: horaire)?(?: de | du | d['’])? ?(?P<what>[\w/+: -]+)",
        r"\bje suis à l['’]heure (?:de |du |d['’])(?P<what>[\w/+:-]+)",
    ),
    rule(
        "state",
        CONTACT_PREFERENCE,
        "préférences de contact, moyen de contact",
        rf"\bje préfère(?:rais)? (?P<what>(?:être (?:contactée?|appelée?|jointe?)|{_CHANNEL})\b.*)",
        r"(?P<what>\b(?:appelle|appelez|écris|écrivez|contacte|contactez|joins|joignez)-moi\b.*"
        rf"\b(?:plutôt|au lieu|par {_CHANNEL}|uniquement|seulement|désormais|dorénavant|à partir de maintenant)\b.*)",
        r"(?P<what>\bne m['’](?:appelez|appelle|écrivez|écris) (?:plus|pas|jamais)\b.*)",
    ),
    rule(
        "state",
        "/job/employer.md",
        "employeur, travail, entreprise, où travaille",
        rf"\bje ne (?:travaille|bosse) (?:plus|pas) {_AT} {_PLACE_OR_FIRM}",
        rf"{_I_AM_NO_LONGER} (?:employée? )?chez {NAME}",
        rf"\bj['’]ai (?:quitté|arrêté de travailler {_AT}) {NAME}{_FIRM_ENDS}",
        rf"\b(?:j['’]ai (?:(?:quitté|perdu) mon {_WORK}|démissionné|été (?:licenciée?|virée?))"
        rf"|je me suis fait (?:virer|licencier|renvoyer)){_FROM_WORK}",
        r"\bje ne (?:travaille|bosse) plus là\b",
        r"\b(?:je suis (?:au chômage|sans emploi|à la retraite)|j['’]ai pris ma retraite)\b",
        ends=True,
    ),
    rule(
        "state",
        "/job/employer.md",
        "employeur, travail, entreprise, où travaille",
        rf"\bje (?:travaille|bosse){_NOW} {_AT} {_PLACE_OR_FIRM}",
        rf"\bj['’]ai quitté (?:mon {_WORK}|(?P<left>(?-i:[A-ZÀ-Þ])[\w&'’ -]+?))"
        rf" (?:pour|et rejoint|et suis passée? chez) (?:rejoindre |entrer chez |travailler chez )?{NAME}",
        rf"\bj['’]ai (?:rejoint|commencé (?:à travailler )?chez|été embauchée? (?:chez|par)) {NAME}",
        rf"\bj['’]ai (?:trouvé )?un (?:nouve(?:l|au) )?{_WORK} chez {NAME}",
        rf"\bmon (?:nouvel )?employeur est {NAME}",
        rf"\bje suis{_NOW} (?:passée? |de retour |retournée? |revenue? |employée? |partie? )?chez {NAME}{_NO_STAY}",
    ),
    rule(
        "state",
        "/job/role.md",
        "métier, poste, profession",
        rf"{_I_AM_NO_LONGER} (?:une? )?(?P<what>{_JOB})\b",
        rf"\bj['’]ai (?:(?:quitté|perdu) mon {_WORK}|démissionné) (?:comme |de |d['’])(?P<what>{_JOB})\b",
        r"\b(?:j['’]ai pris ma|je suis à la) retraite\b",
        ends=True,
    ),
    rule(
        "state",
        "/job/role.md",
        "métier, poste, profession",
        rf"\bje travaille (?:[\w' -]+ )?comme (?P<what>{_JOB}[\w' -]*)",
        rf"\bmon (?:métier|poste|travail) est {OBJECT}",
        rf"\bje suis devenue? (?P<what>{_JOB}[\w' -]*)",
        rf"{_I_AM} (?:une? )?(?P<what>{_JOB}\b(?: [\w'’-]+)?)",
    ),
    rule(
        "state",
        "/education/studies.md",
        "études, formation",
        r"\b(?:j['’]étudie|je fais des études (?:de |d['’]|en )|"
        rf"je prépare (?:un|une) (?:licence|master|doctorat) (?:de |d['’]|en )) ?{OBJECT}",
    ),
    rule(
        "state",
        "/home/city.md",
        "domicile, ville, où habite",
        r"\b(?:(?:je|nous|on) n['’](?:habite|habitons)|(?:je|nous|on) ne (?:vis|vit|vivons)) plus"
        rf" {_IN} {_PLACE_OR_FIRM}",
        ends=True,
    ),
    rule(
        "state",
        "/home/city.md",
        "domicile, ville, où habite",
        r"\b(?:j['’]habite|je vis|je réside|(?:nous|on) (?:habitons|habite|vivons|vit)|je me suis installée?|"
        r"(?:j['’]ai|nous avons|on a) (?:emménagé|déménagé)|"
        r"(?:je viens|nous venons|on vient) (?:(?:de |d['’])(?:dé|em)ménager|de (?:m|nous |s)['’]?installer)|"
        rf"je suis (?:de retour|revenue?|retournée?)){_NOW}{_FROM} {_IN} {_PLACE_OR_FIRM}",
    ),
    rule(
        "state",
        "/family/partner.md",
        "partenaire, femme, mari, famille",
        rf"\b(?:ma|mon) {_PARTNER} (?:s['’]appelle|se nomme|se prénomme|est|,)? ?{ONE_NAME}",
    ),
    rule(
        "state",
        "/family/relationship-status.md",
        "situation familiale, mariage",
        rf"{_I_AM_NO_LONGER} (?P<what>mariée?|fiancée?|célibataire|divorcée?|veu(?:f|ve)|pacsée?|séparée?)\b",
        ends=True,
    ),
    rule(
        "state",
        "/family/relationship-status.md",
        "situation familiale, mariage",
        _I_AM + r" (?P<what>mariée?|fiancée?|célibataire|divorcée?|veu(?:f|ve)|pacsée?|séparée?)\b",
        r"\b(?:j['’]ai|nous avons|on a) (?P<what>divorcé)\b",
        r"(?:\bje me suis|\bon s['’]est|\bnous nous sommes) (?P<what>(?:mari|fianc|pacs|sépar)ée?s?)\b",
        r"\b(?:je viens|nous venons|on vient) de (?:me |nous |se )?"
        r"(?P<what>marier|fiancer|pacser|séparer|divorcer)\b",
    ),
    rule(
        "state",
        "/family/children.md",
        "enfants, famille",
        rf"(?:{_I_HAVE}|\bnous avons)"
        + r" (?P<what>(?:une?|deux|trois|quatre|cinq|\d) (?:grands? |petits? |petites? |jeunes )?"
        r"(?:enfants?|fils|filles?|garçons?))\b",
    ),
    rule(
        "state",
        "/family/{slug}.md",
        "famille, proches",
        rf"\b(?:ma|mon) (?:grande? |petite? )?(?P<what>{_KIN}) (?:s['’]appelle|se nomme|se prénomme) (?-i:[A-ZÀ-Þ])\w+",
    ),
    rule(
        "item",
        "/family/{slug}.md",
        "famille, proches, santé, maladie",
        rf"\b(?:ma|mon) (?:grande? |petite? )?(?P<whose>{_KIN}|{_PARTNER}) (?:a|souffre (?:de |d['’]|du )?)"
        rf" ?(?P<what>{_ILLNESS})\b",
        rf"\b(?:ma|mon) (?:grande? |petite? )?(?P<whose>{_KIN}|{_PARTNER}) est"
        rf" (?P<what>{_ILL}|allergique {_ARTICLE}[\w-]+)\b",
    ),
    rule(
        "item",
        "/pets/{slug}.md",
        "animaux, nom du chien, du chat",
        rf"\b(?:je n['’]ai|nous n['’]avons|on n['’]a) plus (?:de |d['’])(?P<what>{_PET})\b",
        rf"\b(?:mon|ma|notre) {_PET},? {ONE_NAME},?{_DIED}",
        rf"\b(?:mon|ma|notre) (?P<what>{_PET}){_DIED}",
        rf"^{ONE_NAME}{_DIED}",
        ends=True,
    ),
    rule(
        "item",
        "/pets/{slug}.md",
        "animaux, nom du chien, du chat",
        rf"{_WE_HAVE} (?:une?|deux|trois) (?:[\w-]+ )?{_PET}(?: [\w-]+)?,?"
        rf" (?:qui s['’]appelle|nommée?|appelée?) {ONE_NAME}",
        rf"\b(?:mon|ma|notre) {_PET} (?:s['’]appelle|se nomme) {ONE_NAME}",
        rf"{_WE_HAVE} (?P<what>(?:une?|deux|trois|quatre) (?:[\w-]+ )?{_PET})\b(?!.*(?:s['’]appelle|nommé|appelé))",
    ),
    rule(
        "item",
        "/allergies/{slug}.md",
        "allergies, aliments à éviter",
        rf"\bje (?:ne suis (?:pas|plus)|suis pas) (?:du tout )?(?:allergique|intolérante?)"
        rf" {_ARTICLE}{_NOT_ALL}{OBJECT}",
        rf"\bje n['’]ai (?:pas|plus) (?:d['’]|l['’])(?:allergie|intolérance) {_ARTICLE}{_NOT_ALL}{OBJECT}",
        rf"\bje peux {_AGAIN} manger {_ARTICLE}{OBJECT}",
        each=True,
        ends=True,
    ),
    rule(
        "item",
        "/allergies/{slug}.md",
        "allergies, aliments à éviter",
        rf"{_I_AM} (?:très |gravement )?(?:allergique|intolérante?) {_ARTICLE}{OBJECT}",
        rf"\bje ne peux pas manger {_ARTICLE}{OBJECT}",
        rf"{_I_HAVE} une allergie {_ARTICLE}{OBJECT}",
        each=True,
    ),
    rule(
        "state",
        "/diet/way-of-eating.md",
        "régime, alimentation",
        rf"(?:{_I_AM_NO_LONGER}|\bj['’]ai arrêté d['’]être) (?P<what>{_EATS})\b",
        ends=True,
    ),
    rule(
        "state",
        "/diet/way-of-eating.md",
        "régime, alimentation",
        rf"{_I_AM}(?: devenue?)? (?:strictement )?(?P<what>{_EATS})\b",
        r"\bje mange (?P<what>halal|casher|sans gluten)",
    ),
    rule(
        "item",
        "/diet/{slug}.md",
        "régime, aliments et boissons évités",
        rf"\bje (?:mange|bois) {_AGAIN} {_ARTICLE}(?P<what>[\w'’-]+(?: [\w-]+)?)",
        ends=True,
    ),
    rule(
        "item",
        "/diet/{slug}.md",
        "régime, aliments et boissons évités",
        rf"\bje ne (?:mange|bois) (?:pas|plus|jamais) {_ARTICLE}(?P<what>[\w'’-]+(?: [\w-]+)?)",
    ),
    rule(
        "item",
        "/health/{slug}.md",
        "santé, maladie",
        rf"\bje n['’]ai plus (?:de |d['’]|mal au )?(?P<what>{_ILLNESS})\b",
        rf"\bje ne souffre plus (?:de |d['’]|du ){OBJECT}",
        rf"{_I_AM_NO_LONGER} (?P<what>{_ILL})\b",
        ends=True,
    ),
    rule(
        "item",
        "/health/{slug}.md",
        "santé, maladie",
        rf"{_I_HAVE} (?P<what>{_ILLNESS})\b",
        rf"\bje souffre (?:de |d['’]|du ){OBJECT}",
        _I_AM + rf" (?P<what>{_ILL})\b",
    ),
    rule(
        "state",
        PREFERRED,
        "préférences",
        r"\bje préfère (?P<what>(?!que\b|ne\b|ça\b)[\w'’ -]+?) (?:plutôt qu['’e]|à|au|aux) ?(?P<than>[\w'’ -]+)",
        r"\bje préfère (?P<what>(?!que\b|ne\b|ça\b)[\w'’ -]+?)(?=$|[,.;!]| (?:quand|parce|pour)\b)",
    ),
    rule(
        "state",
        FAVOURITE,
        "préféré, favori",
        r"\b(?:mon|ma|mes) (?P<topic>[\w-]+(?: [\w-]+)?) (?:préférée?s?|favorite?s?) (?:est|sont|c['’]est|reste)"
        r" (?P<what>[^.;!]+)",
    ),
    rule(
        "item",
        "/likes/{slug}.md",
        "n'aime pas",
        rf"\bje n['’]aime (?:pas|plus)(?: trop| du tout| vraiment)? {_NAMED}{_ARTICLE}{OBJECT}",
        rf"\bje (?:déteste|ne supporte pas|ne supporte plus|hais) {_NAMED}{_ARTICLE}{OBJECT}",
        each=True,
    ),
    rule(
        "item",
        "/likes/{slug}.md",
        "aime, goûts",
        r"\bj['’](?:aime|adore|apprécie)(?: (?:bien|beaucoup|vraiment|énormément|toujours|aussi))?"
        rf" {_NAMED}{_ARTICLE}{OBJECT}",
        rf"{_I_AM} (?:fan|passionnée?|fou|folle|amateur) {_ARTICLE}{OBJECT}",
        each=True,
    ),
    rule(
        "item",
        "/hobbies/{slug}.md",
        "loisirs, joue",
        rf"\bje ne (?:joue|pratique|collectionne) plus {_ARTICLE}{_PASTIME}",
        r"\bj['’]ai (?:arrêté|abandonné|laissé tomber) (?:de (?:jouer|pratiquer|collectionner) )?"
        rf"{_ARTICLE}{_PASTIME}",
        ends=True,
    ),
    rule(
        "item",
        "/hobbies/{slug}.md",
        "loisirs, joue",
        rf"\bje (?:joue|pratique|collectionne) {_ARTICLE}{OBJECT}",
    ),
)
