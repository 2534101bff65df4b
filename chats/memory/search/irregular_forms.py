"""English words whose forms a stemmer cannot connect, such as *broke* and *break*.

Forms that are common words in their own right are left out: *left*, *found*, *felt*, *saw*,
*lives*. So are the forms of *be*, *do*, *have*, *go*, *get* and *tell*, which carry little meaning.
"""

import re
from collections.abc import Mapping

_FORMS = """
    become became / begin began begun / bite bitten / bleed bled / blow blew blown
    break broke broken / breed bred / bring brought / build built / burn burnt / buy bought
    catch caught / choose chose chosen / come came / creep crept / deal dealt / dig dug
    draw drew drawn / dream dreamt / drink drank drunk / drive drove driven / eat ate eaten
    fall fell fallen / feed fed / fight fought / flee fled / fly flew flown
    forget forgot forgotten / forgive forgave forgiven / freeze froze frozen / give gave given
    grow grew grown / hear heard / hide hid hidden / hold held / keep kept / kneel knelt
    know knew known / lead led / lean leant / leap leapt / learn learnt
    lend lent / lose lost / make made / mean meant / meet met / pay paid / ride rode ridden
    ring rang rung / rise risen / run ran / say said / see seen / seek sought / sell sold
    send sent / shake shook shaken / shine shone / show shown
    shrink shrank shrunk / sing sang sung / sink sank sunk / sit sat / sleep slept / slide slid
    speak spoke spoken / speed sped / spend spent / spin spun / stand stood / steal stole stolen
    stick stuck / sting stung / strike struck / swear swore sworn / sweep swept
    swim swam swum / swing swung / take took taken / teach taught / tear tore torn
    think thought / throw threw thrown / understand understood / wake woke woken
    wear wore worn / weep wept / win won / write wrote written
    child children / man men / woman women / foot feet / tooth teeth / mouse mice
    person people / wife wives / knife knives / half halves / shelf shelves
"""
# Maps each irregular form to the first form of its word.
FIRST_FORMS: Mapping[str, str] = {
    form: group.split()[0] for group in re.split("[/\n]", _FORMS) for form in group.split()[1:]
}
