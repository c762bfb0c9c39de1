"""How things are said in English. Of the rules of one slot the first that matches a clause speaks."""

from services.distiller.extractive.english_names import (
    CHANNEL,
    ILLNESS,
    IS_CALLED,
    JOB,
    KIN,
    LANGUAGE,
    NO_NAME,
    PARTNER,
    PEOPLE,
    PET,
)
from services.distiller.extractive.rules import (
    CONTACT_PREFERENCE,
    EMAIL,
    FAVOURITE,
    MOVED,
    NAME,
    OBJECT,
    ONE_NAME,
    PHONE,
    PREFERRED,
    rule,
)
from services.distiller.extractive.voice import EN_SPAN

EMPLOYER_ASKED = "employer, job, company, where works"
HOME_ASKED = "home, city, where lives"

_TRULY = r"(?: (?:now|currently|still|also|really|just|recently|actually|absolutely|always|mostly|usually))?"
_I = rf"\bI{_TRULY}"
_WE = rf"\b(?:I|we){_TRULY}"
_I_AM = r"\bI(?:['’]m| am)(?: (?:now|currently|still|also|actually|really|just))?"
_I_HAVE = r"\bI(?:['’]ve| have)(?: (?:just|recently|now|also))?"
_WE_ARE = r"\b(?:I(?:['’]m| am)|we(?:['’]re| are))(?: (?:now|currently|still|also|actually|really|just))?"
_MORE = r"(?=.*\b(?:any ?more|any longer|these days|after all)\b)"
_I_DO_NOT = r"\bI (?:no longer|don['’]t|do not)"
_I_NO_LONGER = rf"\b(?:I|we) (?:no longer|(?:don['’]t|do not){_MORE})"
_I_AM_NO_LONGER = rf"\bI(?:['’]m| am) (?:no longer|not{_MORE})"
_I_STOPPED = r"\bI(?:['’]ve| have)? (?:just |recently |finally )?(?:gave up|given up|quit|stopped|dropped)"
# What is played or done, up to how, when and why.
_PASTIME = (
    r"(?!(?:with|at|by|in|on|for|around|it|them|(?:my )?(?:old )?job)\b)(?P<what>[\w' -]+?)(?=$|[,.;!]|"
    r" (?:after|and|any ?more|as|at|because|each|every|for|from|in|last|on|since|th(?:is|ese)|two|when|with|years|"
    r"yesterday)\b)"
)
_AGAIN = r"(?= again\b| now\b)"
# `I love how you …`, `I like that`: nothing is named that could be liked.
_NAMED = (
    r"(?![^.;!,]*\b(?:these|those|this)\b)(?!(?:it|that|how|what|when|where|your|you|the way|them|him|her|seeing|"
    r"hearing|knowing|being able|to see|to hear|to know|to be)\b)"
)
_HERE = r"(?:an?|the) [\w -]+?(?=$|[,.;!]| (?:and|as|for|in|near|since|where|with)\b)"
# `We live in a world where …`
_NO_HOME = r"(?!(?:an?|the) (?:\w+ )?(?:world|age|era|society|times?|dream|past|moment|hope|fear)\b)"
_ENDS = r"(?=$|[,.;!]| (?:a|and|at|but|for|from|here|in|last|now|on|since|this|two|when|with|yesterday)\b)"
_PLACE_OR_FIRM = rf"(?:{NAME}|(?P<some>{_HERE}))"
_FROM = r"(?: from [\w' -]+?)?"
_DIED = r"(?: has)?(?: just| sadly| recently| finally)? (?:died|passed away|is dead|was put (?:down|to sleep))\b"
# `To anything`, `to that`: no slot is named.
_NOT_ALL = r"(?!(?:any(?:thing)?|everything|all|it|them|that|those|these|this)\b)"
_EATS = r"(?:vegan|vegetarian|pescatarian|gluten-free|lactose[- ]intolerant|flexitarian)"
_FIRM_ENDS = r"(?=$|[,.;!]| (?:as|in|last|on|again|after|this|two|three|a)\b)"
# Whose end it is, when it is said: of the job at the library, another than the employer that is known.
_FROM_WORK = (
    rf"(?! as\b)(?: (?:from|at|by|with|for|in) (?:(?:my|the|an?) )?(?!(?:{EN_SPAN}|last|this|late|early|end|beginning|"
    r"good|now|least|once|moment|order|protest|health|personal|more|boss|job|\d+)\b)(?P<what>[\w'’&-]+))?"
)
_NOT_A_GROUP = r"(?!.*\b(?:club|gym|group|team|class|league|choir|band|church|program|community)\b)"

STARTS = (
    r"\b(?:I|my|we|our|as|call|phone|ring|text|e-?mail|mail|message|write|contact|reach|please|just|better|don|do|never|"
    r"stop)\b"
)
RULES = (
    rule("state", "/identity/name.md", "name", rf"\bmy (?:full |first |last )?name(?:['’]s| is) {NAME}"),
    rule(
        "state",
        "/identity/name.md",
        "name",
        rf"\bcall me (?!\w+day\b){NAME}(?!.*\b(?:instead|rather)\b)",
        rf"^I(?:['’]m| am) (?!(?:{PEOPLE}|{NO_NAME})\b)(?=(?-i:[A-Z][a-zà-ÿ])){ONE_NAME}(?: [A-Z]\w+)?(?=[.!]?$|, )",
    ),
    rule(
        "state",
        "/identity/nationality.md",
        "nationality",
        _I_AM + rf" (?:an? )?(?P<what>{PEOPLE})(?: citizen| national)?(?=$|[.,!]| and\b| but\b)",
    ),
    rule(
        "state",
        "/identity/age.md",
        "age, how old",
        _I_AM + r" (?P<what>\d{1,3}) years old\b",
        _I_AM + r" (?P<what>\d{1,3})(?=[.!]?$|,| and\b)",
        r"\bI(?:['’]ve)? (?:just )?turned (?P<what>\d{1,3})\b",
    ),
    rule(
        "state",
        "/identity/pronouns.md",
        "pronouns",
        r"\bmy pronouns are (?P<what>[\w/]+)",
        r"\bI use (?P<what>(?:he|she|they)/\w+)",
    ),
    rule(
        "item",
        "/languages/{slug}.md",
        "languages spoken",
        rf"(?:{_I} (?:speak|understand)|{_I_AM} fluent in|\bmy (?:native|first) language is)"
        rf"(?: (?:fluent|some|a little|good))? "
        rf"(?P<what>{LANGUAGE}(?:(?:,| and|, and) (?:some |a little |a bit of )?{LANGUAGE})*)\b",
        each=True,
    ),
    rule(
        "state",
        "/identity/birthday.md",
        "birthday, date of birth",
        r"\bmy birthday(?:['’]s| is|,)? (?:on )?(?P<what>[^.;!]*\d[^.;!]*)",
        r"\bI was born on (?P<what>[^.;!]*\d[^.;!]*)",
    ),
    rule(
        "state",
        "/identity/origin.md",
        "where from, home country, origin",
        _I_AM + rf" (?:originally )?from {NAME}",
        rf"\bI (?:originally )?(?:come from|grew up in|was born in) {NAME}",
        rf"\bmy home (?:country|town),? (?:is )?{NAME}",
    ),
    rule(
        "state",
        "/contact/email.md",
        "contact, e-mail address",
        r"\bmy (?:work |personal |new )*(?:e-?mail|address)\b.*?" + EMAIL,
        r"\b(?:reach|write|contact|mail|e-?mail) (?:to )?me\b.*?" + EMAIL,
    ),
    rule(
        "state",
        "/contact/phone.md",
        "contact, phone number",
        r"\bmy (?:new |work |mobile |cell |phone )*(?:phone|number|mobile|cell)\b" + PHONE,
        r"\b(?:reach|call|text|phone) me\b" + PHONE,
    ),
    rule(
        "state",
        "/contact/time-zone.md",
        "time zone",
        r"\bI(?:['’]m| am)? (?:in|on|live in) (?:the )?(?P<what>[\w/+: -]{2,40}?) time ?zone\b",
        r"\bI(?:['’]m| am) on (?P<what>[\w/+: -]{2,40}?) time\b",
        r"\bmy time ?zone is (?:the )?(?P<what>[\w/+:-]+)",
        r"\bI(?:['’]m| am) (?:in|on) (?P<what>(?:UTC|GMT)[+-]?\d*|CES?T|[PECM][SD]T|JST|IST)\b",
    ),
    rule(
        "state",
        CONTACT_PREFERENCE,
        "contact preferences",
        r"\bI(?:['’]d| would)? (?:much )?(?:prefer|rather have|like)"
        r"(?: to be (?:contacted|reached) by| to get| getting)?"
        rf" (?P<what>{CHANNEL}\b.*)",
        r"\bI(?:['’]d| would)? prefer (?P<what>(?:to be |being )?(?:called|e-?mailed|texted|contacted|reached)\b.*)",
        r"(?:^|\bplease |\bjust |\bbetter )"
        r"(?P<what>(?:call|phone|ring|text|e-?mail|message|write to|contact|reach) me\b.*"
        rf"\b(?:instead|rather|only|(?:by|via|on|over) {CHANNEL})\b.*)",
        r"(?:^|\bplease |\bjust )(?P<what>(?:call|phone|ring|text|e-?mail|message|write to) me\b(?! (?-i:[A-Z]))"
        r".*\b(?:from now on|in (?:the )?future|going forward)\b.*)",
        r"^(?:please )?(?P<what>(?:don['’]t|do not|never|stop) (?:call|phone|text|e-?mail)(?:ing)? me\b.*)",
    ),
    rule(
        "state",
        "/job/employer.md",
        EMPLOYER_ASKED,
        rf"{_I_DO_NOT} work (?:at|for) {_PLACE_OR_FIRM}",
        rf"{_I_AM_NO_LONGER} (?:working |employed )?(?:at|for|with|by) {NAME}",
        rf"{_I_STOPPED} working (?:at|for) {NAME}",
        rf"{_I_NO_LONGER} work there\b",
        rf"\bI(?:['’]ve| have)? (?:just )?(?:left|quit|resigned from|got laid off from) {_NOT_A_GROUP}{NAME}"
        rf"{_FIRM_ENDS}",
        r"\bI(?:['’]ve| have)?(?: just| recently)? (?:(?:quit|left|lost) my job|"
        rf"(?:was|got|been) (?:laid off|fired(?! up\b)|made redundant)|resigned|retired(?! to\b))\b{_FROM_WORK}",
        rf"{_I_AM} (?:unemployed|out of work|between jobs|retired)\b",
        ends=True,
    ),
    rule(
        "state",
        "/job/employer.md",
        EMPLOYER_ASKED,
        rf"\bI(?:['’]ve| have)?(?: just| recently)? (?:left|quit) (?:my job|(?P<left>(?-i:[A-Z])[\w&'’ -]+?))"
        rf" (?:for|to (?:join|work (?:at|for))|and (?:joined|(?:started|now work) (?:at|for)))"
        rf" {_NOT_A_GROUP}(?!christmas\b|easter\b|\w+day\b){NAME}",
        rf"{_I} work (?:at|for) {_PLACE_OR_FIRM}",
        rf"{_I} (?:started(?: working)?|(?:got|have|took|found) a (?:new )?job) (?:at|with) {_PLACE_OR_FIRM}",
        rf"{_I_AM} (?:working|employed) (?:at|for|by) {_PLACE_OR_FIRM}",
        rf"{_I_HAVE} (?:worked|been working|started(?: working)?) (?:at|for) {_PLACE_OR_FIRM}",
        rf"{_I_AM} (?:back|working) (?:at|with) {NAME}",
        r"\bI(?:['’]ve| have)? (?:just )?(?:joined|rejoined|got hired (?:by|at)|was hired by|went back to|returned to)"
        rf" {_NOT_A_GROUP}{NAME}{_FIRM_ENDS}",
        r"\bI(?:['’]ve| have)? (?:just )?(?:changed|switched) (?:jobs|employers|companies) (?:from [\w&' -]+? )?to "
        rf"{NAME}",
        rf"\bmy (?:new )?(?:employer is|job is (?:at|with)) {NAME}",
        rf"\bI used to work\b.*\bnow I(?:['’]m| am| work) (?:at|for|with) {NAME}",
        rf"(?:{_I_AM} (?:an? |the ){JOB}|\bI (?:work|started|am working) as [\w -]+?) (?:at|for) {NAME}",
    ),
    rule(
        "state",
        "/job/role.md",
        "job, role, profession, occupation",
        rf"{_I_AM_NO_LONGER} (?:an? |the )?(?P<what>{JOB})\b",
        rf"{_I_NO_LONGER} work as (?:an? |the )?(?P<what>[\w -]+?)(?: any ?more\b|{_ENDS})",
        r"\bI(?:['’]ve| have)?(?: just| recently)? (?:(?:quit|left|lost) my job|resigned|retired) as an? "
        rf"(?P<what>{JOB})\b",
        r"\bI(?:['’]ve| have)?(?: just| recently)? retired(?! to\b| as\b)\b",
        ends=True,
    ),
    rule(
        "state",
        "/job/role.md",
        "job, role, profession, occupation",
        rf"(?:{_I} work(?:ed|ing)? as|{_I_AM} (?:working as|promoted to)) (?:an? |the )?(?P<what>[\w -]+?){_ENDS}",
        rf"\bI(?:['’]ve| have)? (?:just )?(?:started|joined [\w ]+) as (?:an? |the )?(?P<what>{JOB})\b",
        rf"\bI (?:just |recently )?(?:(?:got|was) promoted to|became|retrained as) (?:an? |the )?(?P<what>{JOB})\b",
        r"\bmy (?:new )?(?:job title|role|position|profession|job) is(?: to be)? (?!at\b|with\b)(?:an? |the )?"
        rf"{OBJECT}",
        rf"{_I_AM} (?:an? |the )(?P<what>{JOB})\b(?! (?:of|fan|at heart))",
    ),
    rule(
        "state",
        "/education/studies.md",
        "studies, education, degree, field",
        rf"{_I_NO_LONGER} study (?!abroad|for\b|hard|with\b){OBJECT}",
        r"\bI(?:['’]ve| have)?(?: just| recently)? (?:graduated|dropped out)\b",
        ends=True,
    ),
    rule(
        "state",
        "/education/studies.md",
        "studies, education, degree, field",
        rf"(?:{_I} study|{_I_AM} studying) (?!abroad|for\b|hard|with\b){OBJECT}",
        rf"{_I_AM} (?:majoring in|doing a (?:degree|phd|master['’]?s) in) {OBJECT}",
        rf"\bmy major is {OBJECT}",
    ),
    rule(
        "state",
        "/home/city.md",
        HOME_ASKED,
        rf"\b(?:I|we) (?:no longer|don['’]t|do not) (?:live|reside) (?:in|near|at) {_NO_HOME}{_PLACE_OR_FIRM}",
        ends=True,
    ),
    rule(
        "state",
        "/home/city.md",
        HOME_ASKED,
        rf"{_WE} (?:live|reside) (?:in|near|at) {_NO_HOME}{_PLACE_OR_FIRM}",
        rf"{_WE_ARE} (?:living|based|settled|back) in {_NO_HOME}{_PLACE_OR_FIRM}",
    ),
    rule(
        "state",
        MOVED,
        HOME_ASKED,
        rf"\b(?:I|we)(?:['’]ve| have)?(?: just| recently)? (?:moved|relocated)(?: back)?{_FROM} to {NAME}",
    ),
    rule(
        "state",
        "/family/partner.md",
        "partner, wife, husband, family",
        rf"\bmy {PARTNER}(?:{IS_CALLED}| is)? {ONE_NAME}",
    ),
    rule(
        "state",
        "/family/relationship-status.md",
        "relationship status, marriage",
        rf"{_I_AM_NO_LONGER} (?P<what>married|engaged|single|divorced|widowed|separated)\b",
        ends=True,
    ),
    rule(
        "state",
        "/family/relationship-status.md",
        "relationship status, marriage",
        _I_AM + r" (?P<what>married|engaged|single|divorced|widowed|separated)(?=$|[.,!]| (?:to|and|now|since|for)\b)",
        r"\b(?:I|we) (?:just |recently )?got (?P<what>married|engaged|divorced)\b",
        r"\b(?:I|we)(?:['’]ve| have)?(?: just| recently)? (?P<what>(?:split|broke|broken) up|separated)"
        r"(?=$|[,.;!]| (?:after|and|because|in|last|on|two|with)\b)",
        r"\bas a (?P<what>single (?:parent|mother|father|mom|dad))",
    ),
    rule(
        "state",
        "/family/children.md",
        "children, kids, family",
        rf"(?:{_I_HAVE}|\bwe have)(?: got)? (?P<what>(?:an?|one|two|three|four|five|six|\d)"
        r" (?:(?:young|little|grown|grown-up|adult|teenage) )?(?:kids?|children|sons?|daughters?|boys|girls))\b",
    ),
    rule(
        "state",
        "/family/{slug}.md",
        "family, relatives, friends",
        rf"\bmy (?:older |younger |little |big |twin |late )?(?P<what>{KIN}){IS_CALLED} (?-i:[A-Z])\w+",
    ),
    rule(
        "item",
        "/family/{slug}.md",
        "family, relatives, health, illness",
        rf"\bmy (?:older |younger |little |big |twin |late )?(?P<whose>{KIN}|{PARTNER})"
        r"(?:['’]s got| has(?: got)?| suffers from|(?: was|['’]s been| has been) diagnosed with)"
        rf" (?P<what>{ILLNESS})\b",
        rf"\bmy (?:older |younger |little |big |twin )?(?P<whose>{KIN}|{PARTNER})(?: is|['’]s)"
        rf" (?P<what>allergic to [\w ]+?){_ENDS}",
    ),
    rule(
        "item",
        "/pets/{slug}.md",
        "pets, name of dog, cat, animal",
        rf"{_I_NO_LONGER} have (?:an?|any|our|my) (?P<what>{PET})\b",
        rf"\b(?:my|our) (?:[\w-]+ )?{PET},? {ONE_NAME},?{_DIED}",
        rf"\b(?:my|our) (?:[\w-]+ )?(?P<what>{PET}){_DIED}",
        rf"^{ONE_NAME}{_DIED}",
        ends=True,
    ),
    rule(
        "item",
        "/pets/{slug}.md",
        "pets, name of dog, cat, animal",
        r"\b(?:I|we)(?:['’]ve| have)?(?: just)?(?: got| have| own| adopted| had)? (?:an?|my|two|three) "
        rf"(?:[\w-]+ ){{0,3}}?{PET},? (?:named|called) {ONE_NAME}",
        rf"\b(?:my|our) (?:[\w-]+ )?{PET}{IS_CALLED} {ONE_NAME}",
        rf"\b(?:I|we)(?:['’]ve| have)?(?: just)?(?: got| have| own| adopted) (?P<what>(?:an?|two|three|four)"
        rf" (?:[\w-]+ ){{0,2}}?{PET})\b(?! (?:sitter|food|show|toy|named|called))",
    ),
    rule(
        "item",
        "/allergies/{slug}.md",
        "allergies, food to avoid",
        rf"{_I_AM} (?:no longer|not(?: actually| really| at all)?) (?:allergic to|intolerant to|intolerant of)"
        rf" {_NOT_ALL}{OBJECT}",
        rf"(?:{_I_DO_NOT} have an?|\bI(?:['’]ve| have)? (?:got over|outgrew|outgrown) my)"
        r" (?P<what>\w+(?: \w+)?) (?:allergy|intolerance)\b",
        rf"\bI used to be (?:allergic to|intolerant to|intolerant of) {OBJECT}",
        rf"\bI can (?:now |finally )?eat (?P<what>[\w-]+(?: [\w-]+)?){_AGAIN}",
        each=True,
        ends=True,
    ),
    rule(
        "item",
        "/allergies/{slug}.md",
        "allergies, food to avoid",
        rf"{_I_AM} (?:severely |very |badly |deathly )?(?:allergic to|intolerant to|intolerant of) {OBJECT}",
        r"\bI (?:can['’]t|cannot|can not|must not|mustn['’]t|am not allowed to) eat (?!here|there|now|that|it\b|much\b)"
        r"(?P<what>[\w -]+?(?:, [\w -]+?)*)(?=$|[.;!]| because| since| any ?more)",
        _I_HAVE + r"(?: got)? an? (?:severe |bad |mild )?(?P<what>(?!food\b)\w+(?: \w+)?) (?:allergy|intolerance)\b",
        each=True,
    ),
    rule(
        "state",
        "/diet/way-of-eating.md",
        "diet, food",
        rf"{_I_AM_NO_LONGER} (?:an? )?(?:strict )?(?P<what>{_EATS})\b",
        rf"\bI(?:['’]ve| have)? (?:stopped being|quit being|gave up being) (?:an? )?(?P<what>{_EATS})\b",
        ends=True,
    ),
    rule(
        "state",
        "/diet/way-of-eating.md",
        "diet, food",
        rf"(?:{_I_AM}|\bI (?:became|went|turned)|\bI(?:['’]ve| have) (?:been|gone|become))"
        r" (?:an? )?(?:strict |mostly )?"
        rf"(?P<what>{_EATS})\b",
        r"\bI(?: only)? eat (?P<what>halal|kosher|plant-based)",
    ),
    rule(
        "item",
        "/diet/{slug}.md",
        "diet, food and drink avoided",
        rf"\bI(?:['’]ve started| started|['’]m)? (?:eat|eating|drink|drinking) (?P<what>[\w-]+(?: [\w-]+)?){_AGAIN}",
        ends=True,
    ),
    rule(
        "item",
        "/diet/{slug}.md",
        "diet, food and drink avoided",
        r"\bI (?:no longer|don['’]t|do not|never|stopped) (?:eat|eating|drink|drinking)"
        r" (?P<what>(?!it\b|that\b|much\b|any ?more)[\w-]+(?: (?!any ?more)[\w-]+)?)",
    ),
    rule(
        "item",
        "/health/{slug}.md",
        "health, illness, condition",
        rf"{_I_NO_LONGER} (?:have|suffer from) (?P<what>{ILLNESS})\b",
        rf"\bmy (?P<what>{ILLNESS}) (?:is|are) (?:gone|cured)\b",
        ends=True,
    ),
    rule(
        "item",
        "/health/{slug}.md",
        "health, illness, condition",
        rf"{_I_HAVE}(?: got)? (?P<what>{ILLNESS})\b",
        rf"\bI(?: suffer from|(?:['’]ve)? (?:was|been|got) diagnosed with) (?P<what>[\w -]+?){_ENDS}",
    ),
    rule(
        "state",
        PREFERRED,
        "preferences",
        r"\bI(?:['’]d| would)? (?:much )?prefer (?P<what>(?!not\b|it\b|that\b|if\b|to\b)[\w' -]+?)"
        r" (?:over|to|rather than|instead of) (?P<than>[\w' -]+)",
        r"\bI prefer (?P<what>(?!not\b|it\b|that\b|if\b|to\b)[\w' -]+?)(?=$|[,.;!]| (?:when|because|for|on|in)\b)",
    ),
    rule(
        "state",
        FAVOURITE,
        "favourite, favorite",
        r"\bmy (?:all-?time |absolute |personal )?fav(?:ou?rite|e)? (?P<topic>[\w-]+(?: [\w-]+)?)"
        r" (?:is|are|was|has always been|would be) (?P<what>[^.;!]+)",
    ),
    rule(
        "item",
        "/likes/{slug}.md",
        "likes",
        rf"\bI used to (?:like|love|enjoy|adore|be into) {_NAMED}{OBJECT}",
        each=True,
        ends=True,
    ),
    rule(
        "item",
        "/likes/{slug}.md",
        "dislikes",
        rf"{_I} (?:don['’]t|do not|no longer|never) (?:really |much )?(?:like|love|enjoy|care for) {_NAMED}{OBJECT}",
        rf"{_I} (?:hate|dislike|can['’]t stand|detest|despise) {_NAMED}{OBJECT}",
        rf"\bI(?:['’]ve| have)? (?:gone|went) off (?!to\b|the\b|on\b|with\b|in\b){_NAMED}{OBJECT}",
        rf"{_I_AM_NO_LONGER} (?:fond of|crazy about|a (?:big |huge )?fan of|into|keen on) {_NAMED}{OBJECT}",
        each=True,
    ),
    rule(
        "item",
        "/likes/{slug}.md",
        "likes",
        rf"(?<!things )(?<!thing )(?<!one ){_I}(?: do)? (?:like|love|enjoy|adore) {_NAMED}{OBJECT}",
        rf"{_I_AM} (?:fond of|crazy about|a (?:big|huge) fan of|into|keen on|passionate about) {_NAMED}{OBJECT}",
        each=True,
    ),
    rule(
        "item",
        "/hobbies/{slug}.md",
        "hobbies, plays",
        rf"(?:{_I_NO_LONGER}|\bI used to) (?:play|practi[sc]e|collect) (?:the )?{_PASTIME}",
        rf"{_I_STOPPED} (?:playing |practi[sc]ing |collecting )?(?:the |my )?{_PASTIME}",
        ends=True,
    ),
    rule(
        "item",
        "/hobbies/{slug}.md",
        "hobbies, plays",
        rf"{_I} (?:play|practi[sc]e|collect) (?:the )?(?!a lot\b|too\b){_PASTIME}",
    ),
)
