"""English names of kinds: peoples, languages, jobs, relatives, animals, illnesses, ways to be reached, and no names."""

CHANNEL = (
    r"(?:e-?mails?|e-?mailing|mail|phone(?: calls?)?|calls?|calling|texts?|texting|sms|whatsapp|slack|signal|letters?|"
    r"video calls?)"
)
PEOPLE = (
    r"(?:american|british|english|scottish|irish|welsh|canadian|australian|french|german|spanish|italian|portuguese|"
    r"dutch|belgian|swiss|austrian|swedish|norwegian|danish|finnish|polish|czech|greek|turkish|russian|ukrainian|indian|"
    r"pakistani|chinese|japanese|korean|vietnamese|thai|filipino|indonesian|brazilian|mexican|argentinian|colombian|"
    r"chilean|egyptian|moroccan|algerian|tunisian|nigerian|kenyan|ghanaian|ethiopian|south african|israeli|lebanese|"
    r"iranian|romanian|hungarian|bulgarian|serbian|croatian)"
)
LANGUAGE = (
    rf"(?:{PEOPLE}|arabic|hindi|urdu|bengali|mandarin|cantonese|hebrew|persian|farsi|swahili|catalan|basque|tamil|"
    r"esperanto|latin)"
)
JOB = (
    r"(?:[\w-]+ ){0,3}?(?:engineer|developer|programmer|teacher|professor|nurse|doctor|surgeon|dentist|lawyer|manager|"
    r"director|designer|architect|writer|author|journalist|editor|chef|cook|baker|waiter|waitress|barista|driver|pilot|"
    r"farmer|gardener|carpenter|plumber|electrician|mechanic|police officer|firefighter|soldier|accountant|analyst|"
    r"consultant|researcher|scientist|student|librarian|translator|photographer|musician|actor|actress|dancer|painter|"
    r"coach|trainer|counsell?or|therapist|psychologist|pharmacist|vet|veterinarian|social worker|salesperson|"
    r"entrepreneur|freelancer|founder|ceo|cto|administrator|technician|midwife|paramedic|intern)"
)
PARTNER = r"(?:wife|husband|partner|fianc[ée]e?|girlfriend|boyfriend|spouse)"
KIN = (
    r"(?:mother|mom|mum|father|dad|sister|brother|daughter|son|grandmother|grandma|grandfather|grandpa|aunt|uncle|"
    r"cousin|niece|nephew|best friend|boss|roommate|flatmate)"
)
PET = (
    r"(?:dog|puppy|cat|kitten|hamster|rabbit|bunny|parrot|horse|pony|goldfish|fish|snake|turtle|tortoise|guinea pig|"
    r"ferret|lizard|gecko|bird|chicken)s?"
)
ILLNESS = (
    r"(?:(?:type [12] )?diabetes|asthma|migraines?|epilepsy|arthritis|high blood pressure|hypertension|anxiety|"
    r"depression|adhd|c(?:o)?eliac disease|hay fever|eczema|insomnia|a bad back|back pain|a heart condition|dyslexia|"
    r"anemia)"
)
IS_CALLED = r"(?:['’]s name is| is called|['’]s called| is named|,)"
# What can follow `I'm` with a capital letter and is not who somebody is.
NO_NAME = (
    r"(?:ok|okay|sorry|fine|good|great|back|here|tired|sick|busy|happy|sad|ready|sure|done|hungry|bored|lost|new|single|"
    r"married|muslim|christian|catholic|jewish|hindu|buddhist|vegan|vegetarian)"
)
