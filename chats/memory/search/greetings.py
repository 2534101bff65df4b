"""Recognises greetings, thanks and short agreements, which leave nothing to search for."""

import re

from chats.memory.search.asking import GREETINGS, begins_as_question, normalise_letters

_LETTERS = re.compile(r"[^\W_]+")
_CLAUSE = re.compile(r"[.,;:!\n…—]+")
# Words that greet, thank or agree on their own.
_AGREED = """
    cheers ty thankyou welcome perfect wonderful awesome excellent sure fine right true exactly
    indeed agreed sorry apologies wow haha hahaha lol brilliant fantastic amazing lovely
    appreciated understood congrats congratulations yep yup np hiya howdy greetings alright
    absolutely definitely certainly yay afternoon night klar gut gute guten genau richtig stimmt
    super toll prima perfekt wunderbar ausgezeichnet klasse verstanden einverstanden servus moin
    tschüss tschüs glückwunsch entschuldigung morgen gern gerne ja nein doch beaucoup parfait
    bonsoir bonne bon coucou génial compris oui non pardon désolé désolée au revoir accord
    muchas buenos buenas perfecto vale claro adiós entendido sí estupendo genial buongiorno
    buonasera buonanotte buona perfetto prego arrivederci capito certo sì ottimo benissimo scusa
    olá oi tchau boa bom entendi sim não perfeito ótimo valeu desculpa goedemorgen goedenavond
    goedendag welterusten bedankt begrepen nee hoi doei goed отлично хорошо доброе добрый доброй
    спокойной понятно пока ясно понял поняла супер прекрасно замечательно ладно извини извините
    пожалуйста благодарю cześć dobry dobranoc dziękuję dzięki proszę tak nie świetnie дякую
    привіт ні merhaba selam günaydın teşekkürler teşekkür tamam evet hayır hej hejsan tack god
    ahoj děkuji halo terima selamat xin cảm 고마워요 고맙습니다 고마워 안녕히 잘 수고하셨습니다
    수고하세요 수고했어요 예 응 알겠습니다 알겠어요 알았어요 좋아요 좋습니다 좋네요 그래요
    괜찮아요 천만에요 반갑습니다 반가워요 최고예요 죄송합니다 미안해요 أهلا صباح مساء نعم لا
    حسنا تمام ممتاز عفوا السلام رائع शुभ ठीक अच्छा हाँ नहीं अलविदा शुक्रिया
"""
# Words that may accompany a greeting or a short agreement without making it a question.
_BESIDE = """
    you all there everyone everybody team folks again so very much a lot lots million for the
    your that this it help and too then now day weekend got sounds will do appreciate helped
    helps helpful helping re s m ll ve i see later soon tomorrow talk well one yourself sleep
    sweet dreams not worries worry at my pleasure bad really just what needed is was are makes
    sense works worked me to us care take happy merry course of dir euch ihnen vielen sehr schön
    schon zusammen alles tag tage abend nacht mittag wochenende für die hilfe lieben liebe grüße
    gruß das der hat geholfen hilft mir ist war passt auf wiedersehen bis bald später dann
    schlaf schlafen dich auch kein keine ursache geschehen herzlichen frohe weihnachten einen
    wünsche ich schönen noch grüß gott infiniment à tous bien d journée soirée nuit mille pour
    ton votre aide de rien je vous en prie c est noté bientôt demain tout pas souci très gentil
    muchísimas mil por tu su ayuda buen día días tardes noches nada hasta luego mañana pronto
    acuerdo lo siento muy amable la el tutti molte va bene presto domani d'accordo notte di
    niente muito dia tarde noite até logo amanhã breve dag wel u graag gedaan tot ziens большое
    огромное всем утро день вечер ночи ночь до свидания завтра встречи не за что вам тебе dzień
    wieczór bardzo widzenia добрий ранок так iyi geceler akşamlar günler ederim så mycket morgon
    natt bra då dobrý den kasih pagi malam siang chào ơn bạn nhiều tạm biệt 너무 정말 계세요
    가세요 주무세요 자요 자 도움이 되었습니다 됐어요 많이 대단히 내일 봐요 لك جزيلا وسهلا الخير
    النور تصبح على خير مع السلامة عليكم وعليكم إلى اللقاء جدا من فضلك आपका बहुत रात्रि प्रभात है
"""
# Phrases that greet or agree although their words alone may be a question or a statement.
_PHRASES = """
    got it|will do|makes sense|that makes sense|that helps|that helped|that works|works for me
    no problem|no problem at all|not a problem|no worries|no worry|never mind|happy birthday
    happy birthday to you|happy new year|merry christmas|happy holidays|happy anniversary
    see you|see you later|see you soon|see you tomorrow|talk to you later|talk to you soon
    talk to you tomorrow|talk tomorrow|talk later|talk soon|until tomorrow|take care
    have a good one|have a great one|sweet dreams|sleep well|of course|my pleasure
    too bad|i see|all done|well done|done|just what i needed|exactly what i needed
    that was helpful|that is helpful|so helpful|very helpful|very kind
    how are you|how are you today|how is it going|what is up|whats up|was geht
    wie geht s|wie geht es dir|wie geht es ihnen|ça va|cómo estás|come stai|как дела
    bis morgen|bis bald|bis dann|bis später|auf wiedersehen|schönen tag noch|schönen tag
    schönen abend|schönes wochenende|kein problem|keine ursache|grüß gott|schlaf gut|alles klar
    das passt|passt|das hilft mir|das hat geholfen|hat geholfen|ist gut|ist klar|war super
    alles gute zum geburtstag|frohe weihnachten|frohes neues jahr
    de rien|à bientôt|à demain|à plus tard|pas de souci|pas de problème|je vous en prie|c est noté
    c est parfait|bon anniversaire|bonne année|joyeux noël
    hasta luego|hasta mañana|hasta pronto|de nada|lo siento|por nada|de acuerdo|muy amable
    feliz cumpleaños|feliz año nuevo|feliz navidad|no hay problema|sin problema
    a presto|a domani|va bene|di niente|d accordo|buon compleanno|nessun problema
    até logo|até amanhã|até breve|sem problema|feliz aniversário|feliz ano novo
    tot ziens|tot morgen|graag gedaan|geen probleem|dank je wel
    до свидания|до завтра|до встречи|не за что|нет проблем|с днем рождения|с новым годом
    do widzenia|do zobaczenia|iyi geceler|iyi günler|iyi akşamlar|tạm biệt|hej då
    내일 봐요|도움이 되었습니다|تصبح على خير|مع السلامة|إلى اللقاء|من فضلك
"""
_HAVE_A_DAY = re.compile(
    r"\b(?:have|enjoy) (?:a |an |your |the )?(?:very )?"
    r"(?:(?:good|nice|great|lovely|wonderful|pleasant) )?"
    r"(?:day|evening|night|morning|afternoon|weekend|holidays?|trip|time)\b(?: too| everyone)?"
)
# Greetings in scripts without spaces, with polite endings.
_WIDE_GREETINGS = re.compile(
    "(?:どうも)?ありがとう(?:ございます|ございました|ね)?|感謝(?:します|しています)?|おはよう(?:ございます)?|こんばんは|"
    "こんにちは|おやすみ(?:なさい)?|さようなら|またね|また(?:明日|後で|あとで)|じゃあね?|"
    "了解(?:です|しました)?|承知(?:です|しました|いたしました)|わかりました|分かりました|わかった|分かった|なるほど|"
    "お疲れ(?:様|さま)(?:です|でした)?|よろしく(?:お願いします)?|お願いします|(?:とても)?助かり(?:ました|ます)|助かる|"
    "すみません|ごめん(?:なさい)?|いいですね|すごい(?:です)?|素晴らしい(?:です)?|完璧(?:です)?|はい|ええ|うん|いいえ|どうも|"
    "どういたしまして|大丈夫(?:です)?|その通り(?:です)?|そうですね?|[ねよ]|"
    "非常感谢|十分感谢|多谢|感谢|感謝|谢谢|謝謝|谢了|多謝|辛苦了?|你好|您好|大家好|早上好|上午好|中午好|下午好|晚上好|"
    "早安|午安|晚安|早啊?|好的|好吧|好呀|明白了?|收到|知道了|懂了|了解|太好了|太棒了|很好|不错|真棒|厉害|"
    "没问题|没事|没关系|不客气|不用谢|再见|拜拜|回头见|明天见|下次见|一会见|是的|对的?|嗯+|哦+|哈+|"
    "对不起|抱歉|不好意思|麻烦了?|帮了大忙|[你您啦了呀啊哦的很就行]|"
    "ขอบคุณ(?:มาก|ครับ|ค่ะ|คะ)*|สวัสดี(?:ครับ|ค่ะ)?|ราตรีสวัสดิ์|ลาก่อน|ครับ|ค่ะ|ใช่|โอเค"
)


_ALONE = frozenset(_LETTERS.findall(normalise_letters(f"{' '.join(GREETINGS)} {_AGREED}")))
_KNOWN = _ALONE | frozenset(_LETTERS.findall(normalise_letters(_BESIDE)))
_WHOLE = frozenset(
    " ".join(_LETTERS.findall(normalise_letters(phrase)))
    for line in _PHRASES.splitlines()
    for phrase in line.split("|")
    if phrase.strip()
)


def is_greeting(text: str) -> bool:
    """Return True if the text only greets, thanks or agrees, leaving nothing to search for.

    This includes text without letters and digits, such as an emoji. A text that begins as a
    question is none, nor one in which no word greets or agrees on its own, except some phrases.
    """
    if any(mark in text for mark in "?？؟"):
        return False
    plain = _HAVE_A_DAY.sub(" ", normalise_letters(_WIDE_GREETINGS.sub(" ", text)))
    has_greeting = plain != normalise_letters(text)
    is_left = False
    for clause in _CLAUSE.split(plain):
        words = strip_phrases(_LETTERS.findall(clause))
        if begins_as_question(" ".join(words)) or not _KNOWN.issuperset(words):
            return False
        has_greeting |= len(words) < len(_LETTERS.findall(clause))
        has_greeting |= not _ALONE.isdisjoint(words)
        is_left |= bool(words)
    return has_greeting or not is_left


def strip_phrases(words: list[str]) -> list[str]:
    """Return the words of a clause without a phrase that greets at its beginning or its end."""
    for size in range(len(words), 0, -1):
        if " ".join(words[:size]) in _WHOLE:
            return words[size:]
        if " ".join(words[-size:]) in _WHOLE:
            return words[:-size]
    return words


def mask_greetings(text: str) -> str:
    """Return the text with greetings replaced by spaces."""
    return _LETTERS.sub(
        lambda run: " " * len(run[0]) if run[0].casefold() in GREETINGS else run[0], text
    )
