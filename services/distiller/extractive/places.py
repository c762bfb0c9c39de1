"""Tells a place from an employer in `I moved to X`: by countries, large cities and words that stand near a place."""

import re

_NAMES = """
    accra, adelaide, africa, alaska, algeria, algiers, america, amsterdam, ankara, antwerp, argentina, arizona,
    asia, athens, atlanta, auckland, austin, australia, austria, baltimore, bangalore, bangkok, bangladesh,
    barcelona, basel, beijing, beirut, belfast, belgium, belgrade, bergen, berlin, bern, birmingham, bogota,
    bologna, bordeaux, boston, brazil, brisbane, bristol, brussels, bucharest, budapest, buenos aires, bulgaria,
    busan, cairo, calgary, california, cambridge, canada, cape town, cardiff, casablanca, chennai, chicago, chile,
    china, cincinnati, cleveland, cologne, colombia, colorado, copenhagen, cork, croatia, cuba, czechia, dakar,
    dallas, delhi, denmark, denver, detroit, dhaka, dresden, dubai, dublin, edinburgh, egypt, england, estonia,
    ethiopia, europe, finland, florence, florida, france, frankfurt, galway, geneva, georgia, germany, ghana, ghent,
    glasgow, gothenburg, greece, grenoble, hamburg, hanoi, havana, hawaii, helsinki, hong kong, houston, hungary,
    iceland, illinois, india, indonesia, ireland, israel, istanbul, italy, jakarta, japan, jerusalem, johannesburg,
    karachi, kathmandu, kenya, kolkata, korea, krakow, kuala lumpur, kyiv, kyoto, la, lagos, las vegas, latvia,
    lebanon, leeds, leipzig, lille, lima, lisbon, lithuania, liverpool, london, los angeles, luxembourg, lyon,
    madrid, malaysia, manchester, manila, marseille, massachusetts, medellin, melbourne, memphis, mexico,
    mexico city, miami, michigan, milan, minneapolis, minnesota, montpellier, montreal, morocco, moscow, mumbai,
    munich, nairobi, nantes, naples, nashville, nepal, netherlands, nevada, new delhi, new orleans, new york,
    new york city, new zealand, nice, nigeria, norway, nyc, ohio, oregon, orlando, osaka, oslo, ottawa, oxford,
    pakistan, paris, perth, peru, philadelphia, philippines, phoenix, pittsburgh, poland, portland, porto, portugal,
    prague, quebec, rennes, reykjavik, rio, rio de janeiro, romania, rome, rotterdam, russia, salt lake city,
    san antonio, san diego, san francisco, san jose, santiago, sao paulo, scotland, seattle, senegal, seoul, serbia,
    seville, shanghai, shenzhen, singapore, slovakia, slovenia, sofia, south africa, south korea, spain, stockholm,
    strasbourg, stuttgart, sweden, switzerland, sydney, taipei, taiwan, tel aviv, texas, thailand, the hague,
    the netherlands, the philippines, the uk, the united kingdom, the united states, the us, tokyo, toronto,
    toulouse, tunis, tunisia, turin, turkey, uae, uk, ukraine, united kingdom, united states, us, usa, utah,
    utrecht, valencia, vancouver, venice, vienna, vietnam, virginia, wales, warsaw, washington, wellington, zagreb,
    zurich
"""
_PLACES = frozenset(name.strip() for name in _NAMES.replace("\n", " ").split(","))
_NEAR_A_PLACE = re.compile(
    r"\b(?:city|town|village|island|state|country|county|coast|beach|suburbs?|countryside|downtown|apartment|flat|house|"
    r"neighbou?rhood|street|avenue|with my (?:family|wife|husband|partner|parents|kids)|live|living)\b|, [A-Z]{2}\b",
)


def is_known_place(name: str) -> bool:
    return name.split(",")[0].strip().lower() in _PLACES


def is_place(name: str, clause: str) -> bool:
    return is_known_place(name) or bool(_NEAR_A_PLACE.search(clause))
