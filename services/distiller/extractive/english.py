"""How things are said in English. The first rule that matches a clause wins among those of the same topic."""

from services.distiller.extractive.rules import EMAIL, NAME, OBJECT, PHONE, rule

_I = r"\bI(?: (?:now|currently|still|also|really|just|recently|actually|absolutely|always|mostly|usually))?"
_I_AM = r"\bI(?:['’]m| am)(?: (?:now|currently|still|also|actually|really|just))?"
_I_HAVE = r"\bI(?:['’]ve| have)(?: (?:just|recently|now|also))?"
_CHANNEL = r"(?:e-?mails?|e-?mailing|mail|phone(?: calls?)?|calls?|calling|texts?|texting|sms|whatsapp|slack|signal|letters?|video calls?)"
_PEOPLE = (
    r"(?:american|british|english|scottish|irish|welsh|canadian|australian|french|german|spanish|italian|portuguese|dutch|belgian|"
    r"swiss|austrian|swedish|norwegian|danish|finnish|polish|czech|greek|turkish|russian|ukrainian|indian|pakistani|chinese|japanese|"
    r"korean|vietnamese|thai|filipino|indonesian|brazilian|mexican|argentinian|colombian|chilean|egyptian|moroccan|algerian|tunisian|"
    r"nigerian|kenyan|ghanaian|ethiopian|south african|israeli|lebanese|iranian|romanian|hungarian|bulgarian|serbian|croatian)"
)
_LANGUAGE = rf"(?:{_PEOPLE}|arabic|hindi|urdu|bengali|mandarin|cantonese|hebrew|persian|farsi|swahili|catalan|basque|tamil|esperanto|latin)"
_JOB = (
    r"(?:[\w-]+ ){0,3}?(?:engineer|developer|programmer|teacher|professor|nurse|doctor|surgeon|dentist|lawyer|manager|director|designer|"
    r"architect|writer|author|journalist|editor|chef|cook|baker|waiter|waitress|barista|driver|pilot|farmer|gardener|carpenter|plumber|"
    r"electrician|mechanic|police officer|firefighter|soldier|accountant|analyst|consultant|researcher|scientist|student|librarian|"
    r"translator|photographer|musician|actor|actress|dancer|painter|coach|trainer|counsell?or|therapist|psychologist|pharmacist|vet|"
    r"veterinarian|social worker|salesperson|entrepreneur|freelancer|founder|ceo|cto|administrator|technician|midwife|paramedic|intern)"
)
_PARTNER = r"(?:wife|husband|partner|fianc[ée]e?|girlfriend|boyfriend|spouse)"
_KIN = r"(?:mother|mom|mum|father|dad|sister|brother|daughter|son|grandmother|grandma|grandfather|grandpa|aunt|uncle|cousin|niece|nephew|best friend|boss|roommate|flatmate)"
_PET = r"(?:dog|puppy|cat|kitten|hamster|rabbit|bunny|parrot|horse|pony|goldfish|fish|snake|turtle|tortoise|guinea pig|ferret|lizard|gecko|bird|chickens?)"
_ILLNESS = (
    r"(?:(?:type [12] )?diabetes|asthma|migraines?|epilepsy|arthritis|high blood pressure|hypertension|anxiety|depression|adhd|celiac disease|coeliac disease|"
    r"hay fever|eczema|insomnia|a bad back|back pain|a heart condition|dyslexia|anemia)"
)
_NOT_LIKED = r"(?!(?:it|that|this|these|those|how|what|when|where|your|you|the way|them|him|her|seeing|hearing|knowing|being able|to see|to hear|to know)\b)"

RULES = (
    rule(r"\bmy (?:full |first |last )?name(?:['’]s| is) (?P<what>" + NAME + ")", "state", "/identity/name.md", "name"),
    rule(r"\b(?:you can |please )?call me (?P<what>" + NAME + r")(?!.*\b(?:instead|rather)\b)", "state", "/identity/name.md", "name"),
    rule(_I_AM + rf" (?:an? )?(?P<what>{_PEOPLE})(?: citizen| national)?(?=$|[.,!]| and\b| but\b)", "state", "/identity/nationality.md", "nationality"),
    rule(r"^I(?:['’]m| am) (?P<what>(?-i:[A-Z][a-z'’-]+(?: [A-Z][a-z'’-]+)?))(?=[.!]?$|, )", "state", "/identity/name.md", "name"),
    rule(_I_AM + r" (?P<what>\d{1,3})(?: years old)?(?=[.!]?$|,| and\b)", "state", "/identity/age.md", "age, how old"),
    rule(r"\bI(?:['’]ve)? (?:just )?turned (?P<what>\d{1,3})\b", "state", "/identity/age.md", "age, how old"),
    rule(r"\bmy pronouns are (?P<what>[\w/]+)|\bI use (?P<also>(?:he|she|they)/\w+)", "state", "/identity/pronouns.md", "pronouns"),
    rule(rf"(?:{_I} (?:speak|understand)|{_I_AM} fluent in|\bmy (?:native|first) language is)(?: (?:fluent|some|a little|good))? (?P<what>{_LANGUAGE}(?:(?:,| and|, and) {_LANGUAGE})*)", "item", "/languages/{slug}.md", "languages spoken", each=True),
    rule(r"\bmy birthday(?:['’]s| is|,)? (?:on )?(?P<what>[^,.;!]*\d[^,.;!]*)|\bI was born on (?P<also>[^,.;!]*\d[^.;!]*)", "state", "/identity/birthday.md", "birthday, date of birth"),
    rule(_I_AM + r" (?:originally )?from (?P<what>" + NAME + r")|\bI (?:originally )?(?:come from|grew up in|was born in) (?P<also>" + NAME + ")", "state", "/identity/origin.md", "where from, home country, origin"),
    rule(r"(?:\bmy (?:work |personal |new )?(?:e-?mail|address)\b|\b(?:reach|write|contact|mail|e-?mail) (?:to )?me\b).*?" + EMAIL, "state", "/contact/email.md", "contact, e-mail address"),
    rule(r"(?:\bmy (?:new |work |mobile |cell |phone )*(?:phone|number|mobile|cell)\b|\b(?:reach|call|text|phone) me\b)[^\d+]*" + PHONE, "state", "/contact/phone.md", "contact, phone number"),
    rule(r"(?:\bI(?:['’]m| am)? (?:in|on|live in) (?:the )?|\bmy time ?zone is )(?P<what>[\w/+: -]{2,40}?)(?: standard| daylight)? time(?: ?zone)?\b|\bmy time ?zone is (?P<also>[\w/+:-]+)|\bI(?:['’]m| am) (?:in|on) (?P<more>(?:UTC|GMT)[+-]?\d*|CES?T|P[SD]T|E[SD]T|C[SD]T|M[SD]T|JST|IST)\b", "state", "/contact/time-zone.md", "time zone"),
    rule(rf"\bI(?:['’]d| would)? (?:much )?(?:prefer|rather have|like)(?: to be (?:contacted|reached) by| to get| getting)? (?P<what>{_CHANNEL}\b.*|(?:to be )?(?:called|e-?mailed|texted|contacted|reached)\b.*)", "state", "/contact/preference.md", "contact preferences"),
    rule(rf"(?:^|\bplease |\bjust |\bbetter )(?P<what>(?:don['’]t |do not |never )?(?:call|phone|ring|text|e-?mail|message|write to|contact|reach) me\b.*\b(?:instead|rather|by {_CHANNEL}|via \w+|on \w+|over \w+|only)\b.*)|^(?:please )?(?P<also>(?:don['’]t|do not|never) (?:call|phone|text|e-?mail) me\b.*)", "state", "/contact/preference.md", "contact preferences"),
    rule(rf"(?:{_I}(?: no longer| don['’]t| do not)? (?:work|started(?: working)?|got a (?:new )?job|took a (?:new )?job)|{_I_AM} (?:working|employed)|{_I_HAVE} (?:worked|been working|started(?: working)?)) (?:at|for|by) (?P<what>{NAME}|(?:an?|the) [\w -]+?(?=$|[,.;!]| (?:in|as|and|since|for|near|where)\b))", "state", "/job/employer.md", "employer, job, company, where works"),
    rule(rf"{_I_AM} (?:back|employed|working) (?:at|with) (?P<what>(?-i:[A-Z])\w[\w&'’. -]*)|\bI(?:['’]ve)? (?:just )?(?:joined|rejoined|left|quit|got hired (?:by|at)|was hired by|got laid off from|returned to work at) (?P<also>(?-i:[A-Z])(?!.*\b(?:club|gym|group|team|class|league|choir|band|church)\b)\w[\w&'’.-]*(?: (?-i:[A-Z])[\w&'’.-]*)*)|\bmy (?:new )?employer is (?P<more>{NAME})", "state", "/job/employer.md", "employer, job, company, where works"),
    rule(rf"(?:{_I} work(?:ed|ing)? as|{_I_AM} (?:working as|promoted to)|\bI (?:got|was) promoted to|\bI became|\bmy (?:new )?(?:job title|role|position|profession|job) is(?: to be)?) (?:an? |the )?{OBJECT}", "state", "/job/role.md", "job, role, profession, occupation"),
    rule(rf"{_I_AM} (?:an? |the )(?P<what>{_JOB})\b(?! (?:of|fan|at heart))", "state", "/job/role.md", "job, role, profession, occupation"),
    rule(rf"(?:{_I} study|{_I_AM} (?:studying|majoring in|doing a (?:degree|phd|master['’]?s) in)|\bmy major is) (?!abroad|for\b|hard){OBJECT}", "state", "/education/studies.md", "studies, education, degree, field"),
    rule(rf"(?:{_I}(?: no longer| don['’]t)? (?:live|reside)|{_I_AM} (?:living|based|settled)) (?:in|near|at) (?P<what>{NAME}|(?:an?|the) [\w -]+?(?=$|[,.;!]| (?:and|since|with|for|near|where)\b))", "state", "/home/city.md", "home, city, where lives"),
    rule(rf"\bI(?:['’]ve| have)?(?: just| recently)? (?:moved|relocated)(?: back)? to (?P<what>{NAME})|{_I_AM} (?:moving|relocating) to (?P<also>{NAME})|{_I_AM} back in (?P<more>{NAME})", "state", "moved", "home, city, where lives"),
    rule(rf"\bmy {_PARTNER}(?:['’]s name is|['’]s called| is called| is named| is|,|['’]s)? (?P<what>(?-i:[A-Z])\w+)", "state", "/family/partner.md", "partner, wife, husband, family"),
    rule(rf"{_I_AM} (?P<what>married|engaged|single|divorced|widowed|separated)\b(?! out)|\bI (?:got|recently got) (?P<also>married|engaged|divorced)\b|\bas a (?P<more>single (?:parent|mother|father|mom|dad))", "state", "/family/relationship-status.md", "relationship status, marriage"),
    rule(rf"{_I_HAVE}(?: got)? (?P<what>(?:an?|one|two|three|four|five|six|\d) (?:(?:young|little|grown|grown-up|adult|teenage) )?(?:kids?|children|sons?|daughters?|boys|girls))\b", "state", "/family/children.md", "children, kids, family"),
    rule(rf"\bmy (?:older |younger |little |big |twin |late )?(?P<what>{_KIN})(?:['’]s name is| is called| is named|,|['’]s called) (?-i:[A-Z])\w+", "state", "/family/{slug}.md", "family, relatives, friends"),
    rule(rf"(?:\b(?:I|we)(?:['’]ve| have)?(?: just)?(?: got| have| own| adopted| had)?|\bI have) (?:an?|my|two|three) (?:[\w-]+ ){{0,3}}?{_PET}s?,? (?:named|called) (?P<what>(?-i:[A-Z])\w+)|\b(?:my|our) (?:[\w-]+ )?{_PET}(?:['’]s name is| is called| is named|, ) ?(?P<also>(?-i:[A-Z])\w+)", "item", "/pets/{slug}.md", "pets, name of dog, cat, animal"),
    rule(rf"\b(?:I|we)(?:['’]ve| have)?(?: just)?(?: got| have| own| adopted) (?P<what>(?:an?|two|three|four) (?:[\w-]+ ){{0,2}}?{_PET}s?)\b(?! (?:named|called))", "item", "/pets/{slug}.md", "pets, animals"),
    rule(rf"{_I_AM} (?:severely |very |badly |deathly )?(?:allergic to|intolerant to|intolerant of) {OBJECT}|\bI (?:can['’]t|cannot|can not|must not|mustn['’]t|am not allowed to) eat (?!here|there|now|that|it\b)(?P<also>[\w -]+?(?:, [\w -]+?)*)(?=$|[.;!]| because| since| any ?more)", "item", "/allergies/{slug}.md", "allergies, food to avoid", each=True),
    rule(rf"{_I_HAVE}(?: got)? an? (?:severe |bad |mild )?(?P<what>(?!food\b)\w+(?: \w+)?) (?:allergy|intolerance)\b", "item", "/allergies/{slug}.md", "allergies, food to avoid"),
    rule(rf"(?:{_I_AM}|\bI (?:became|went|turned)|\bI(?:['’]ve| have) (?:been|gone|become)) (?:an? )?(?:strict |mostly )?(?P<what>vegan|vegetarian|pescatarian|gluten-free|lactose[- ]intolerant|flexitarian)\b|\bI(?: only)? eat (?P<also>halal|kosher|plant-based)", "state", "/diet/way-of-eating.md", "diet, food"),
    rule(r"\bI (?:no longer|don['’]t|do not|never|stopped) (?:eat|eating|drink|drinking) (?P<what>(?!it\b|that\b|much\b)[\w-]+(?: [\w-]+)?)", "item", "/diet/{slug}.md", "diet, food and drink avoided"),
    rule(rf"{_I_HAVE}(?: got)? (?P<what>{_ILLNESS})\b|\bI suffer from {OBJECT.replace('what', 'also')}|\bI(?:['’]ve)? (?:was|been|got) diagnosed with {OBJECT.replace('what', 'more')}", "item", "/health/{slug}.md", "health, illness, condition"),
    rule(rf"\bI(?:['’]d| would)? (?:much )?prefer (?P<what>(?!not\b|it\b|that\b|if\b)[\w' -]+?) (?:over|to|rather than|instead of) (?P<than>[\w' -]+)|\bI prefer (?P<also>(?!not\b|it\b|that\b|if\b|to\b)[\w' -]+?)(?=$|[,.;!]| (?:when|because|for|on|in)\b)", "state", "preferred", "preferences"),
    rule(r"\bmy (?:all-?time |absolute |personal )?fav(?:ou?rite|e)? (?P<topic>[\w-]+(?: [\w-]+)?) (?:is|are|was|has always been|would be|to \w+ is) (?P<what>[^.;!]+)", "state", "favourite", "favourite, favorite"),
    rule(rf"{_I} (?:don['’]t|do not|no longer|never) (?:really |much )?(?:like|love|enjoy|care for) {_NOT_LIKED}{OBJECT}|{_I} (?:hate|dislike|can['’]t stand|detest|despise) {_NOT_LIKED}{OBJECT.replace('what', 'also')}", "item", "/likes/{slug}.md", "dislikes", each=True),
    rule(rf"{_I}(?: do)? (?:like|love|enjoy|adore) {_NOT_LIKED}{OBJECT}|{_I_AM} (?:fond of|crazy about|a (?:big|huge) fan of|into|keen on|passionate about) {_NOT_LIKED}{OBJECT.replace('what', 'also')}", "item", "/likes/{slug}.md", "likes", each=True),
    rule(rf"{_I} (?:play|practi[sc]e|collect) (?:the )?{OBJECT}", "item", "/hobbies/{slug}.md", "hobbies, plays"),
)  # fmt: skip

DECISION = r"\b(?:I|we)(?:['’]ve| have)? (?:decided|chose|chosen|agreed|made up my mind|settled on)\b"
PLAN = (
    r"\b(?:I|we)(?:['’]m| am|['’]re| are) (?:planning|going to|gonna|hoping|aiming|thinking (?:of|about)|looking into|saving|about to|off to)\b|^gonna\b"
    r"|\b(?:I|we) (?:plan|want|wanna|intend|hope|aim|will|need) (?:to|on)?\b|\b(?:I|we)['’]ll\b|\b(?:I|we)['’]d (?:love|like) to\b|\b(?:my|our) (?:goal|dream|plan)s?\b"
)
HAPPENED = (
    r"\b(?:I|we)(?:['’]ve| have)?(?: (?:just|also|recently|finally|even|already|actually))? (?:\w{3,}ed|went|got|had|met|bought|took|made|saw|"
    r"gave|won|lost|began|begun|came|found|left|ran|read|sold|spent|told|taught|thought|wrote|built|broke|caught|did|done|drove|flew|grew|held|"
    r"joined|put|rode|sang|sent|swam|been|seen|started)\b|^(?:just|recently|finally|went|got|met|joined|started|finished|bought|visited)\b"
)
