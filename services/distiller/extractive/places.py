"""Tells a place from an employer in `I moved to X`. It knows countries, large cities and words that stand near a place."""

import re

_PLACES = frozenset(
    "africa|america|asia|europe|england|scotland|wales|ireland|france|germany|spain|italy|portugal|belgium|netherlands|the netherlands|luxembourg|"
    "switzerland|austria|sweden|norway|denmark|finland|iceland|poland|czechia|slovakia|hungary|romania|bulgaria|greece|turkey|ukraine|russia|serbia|"
    "croatia|slovenia|estonia|latvia|lithuania|israel|lebanon|egypt|morocco|algeria|tunisia|senegal|nigeria|ghana|kenya|ethiopia|south africa|india|"
    "pakistan|bangladesh|nepal|china|japan|korea|south korea|taiwan|thailand|vietnam|malaysia|singapore|indonesia|philippines|the philippines|"
    "australia|new zealand|canada|mexico|brazil|argentina|chile|peru|colombia|cuba|usa|us|the us|uk|the uk|uae|dubai|united states|the united states|"
    "united kingdom|the united kingdom|new york|new york city|nyc|los angeles|la|chicago|houston|phoenix|philadelphia|san antonio|san diego|dallas|"
    "san jose|san francisco|austin|seattle|denver|boston|washington|portland|las vegas|detroit|nashville|memphis|baltimore|atlanta|miami|orlando|"
    "minneapolis|pittsburgh|cleveland|cincinnati|salt lake city|new orleans|california|texas|florida|oregon|colorado|arizona|nevada|utah|ohio|"
    "michigan|illinois|georgia|virginia|massachusetts|minnesota|hawaii|alaska|toronto|montreal|vancouver|ottawa|calgary|quebec|mexico city|"
    "london|manchester|birmingham|leeds|liverpool|bristol|edinburgh|glasgow|cardiff|belfast|dublin|cork|galway|oxford|cambridge|paris|lyon|marseille|"
    "toulouse|bordeaux|lille|nantes|nice|strasbourg|rennes|grenoble|montpellier|brussels|antwerp|ghent|amsterdam|rotterdam|utrecht|the hague|berlin|munich|"
    "hamburg|cologne|frankfurt|stuttgart|leipzig|dresden|vienna|zurich|geneva|basel|bern|madrid|barcelona|valencia|seville|lisbon|porto|rome|milan|"
    "naples|turin|florence|venice|bologna|athens|istanbul|ankara|stockholm|gothenburg|oslo|bergen|copenhagen|helsinki|reykjavik|warsaw|krakow|"
    "prague|budapest|bucharest|sofia|belgrade|zagreb|kyiv|moscow|tel aviv|jerusalem|beirut|cairo|casablanca|algiers|tunis|dakar|lagos|accra|nairobi|"
    "cape town|johannesburg|delhi|new delhi|mumbai|bangalore|chennai|kolkata|karachi|dhaka|kathmandu|beijing|shanghai|shenzhen|hong kong|taipei|"
    "tokyo|osaka|kyoto|seoul|busan|bangkok|hanoi|kuala lumpur|jakarta|manila|sydney|melbourne|brisbane|perth|adelaide|auckland|wellington|"
    "sao paulo|rio de janeiro|rio|buenos aires|santiago|lima|bogota|medellin|havana".split("|")
)
_NEAR_A_PLACE = re.compile(
    r"\b(?:city|town|village|island|state|country|county|coast|beach|suburbs?|countryside|downtown|apartment|flat|house|"
    r"neighbou?rhood|street|avenue|with my (?:family|wife|husband|partner|parents|kids)|live|living)\b|, [A-Z]{2}\b",
)


def is_place(name: str, clause: str) -> bool:
    first = name.split(",")[0].strip().lower()
    return first in _PLACES or bool(_NEAR_A_PLACE.search(clause))
