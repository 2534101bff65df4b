"""Recognises questions and requests by their punctuation and their first words."""

import re
import unicodedata

# Greetings, thanks and polite words, which carry no information.
_GREETED = """
    hi hello hey hallo bonjour hola ciao salut thanks thank thx danke dank merci gracias grazie
    obrigado obrigada please bitte ok
    okay yes no yeah nope bye goodbye morning evening good great nice cool test
    привет спасибо здравствуйте да нет 你好 您好 谢谢 谢 好的 こんにちは ありがとう はい 안녕
    안녕하세요 감사합니다 네 สวัสดี ขอบคุณ مرحبا شكرا سلام नमस्ते धन्यवाद
"""
GREETINGS = frozenset(_GREETED.split())
# Words before the first word that asks: they connect a question with earlier messages.
_CONNECTING = """
    so and but or now then well actually also too oh ah um hm hmm just still anyway btw first next
    finally sorry great right fine sure perfect alright dear you guys everyone all once again
    und aber oder nun jetzt dann noch mal außerdem übrigens eigentlich ach achso gut ja doch na
    et mais alors donc aussi bon ben puis maintenant enfin stp svp oui
    y e pero entonces también ahora bueno además pues si sí
    ma allora anche adesso poi dunque inoltre bene
    mas então também agora
    en maar dus nu ook dan graag hoi
    и а но ну так теперь ещё еще также тогда кстати пожалуйста ладно хорошо
    그리고 그럼 그런데 또 이제 و ثم لكن طيب حسنا فضلك من और तो फिर लेकिन कृपया अब
    lütfen proszę
"""
# First words of questions and requests.
_BEGINNINGS = """
    what whats who whos whom whose when where which why how did does do is are was were can could
    would should have has had will am shall may might need tell list show find remind summarise
    summarize explain describe give name compare recall enumerate outline repeat count provide
    search check mention sum
    was wer wem wen wessen wann wo woher wohin welche welcher welches welchen warum wieso wie hat
    hatte ist sind kannst können könntest könnten hast haben habe nenn nenne nennen zeige zeig sag
    sage erzähl erzähle erkläre liste fasse gib erinnere erinner beschreibe beschreib vergleiche
    suche such finde brauche wieviel wieviele
    qui que quoi quand où quel quelle quels quelles pourquoi comment combien dis dites montre
    montrez rappelle rappelez explique expliquez résume résumez donne donnez liste listez énumère
    décris cite citez trouve raconte qué quién quiénes cuándo dónde cuál cuáles cómo cuánto cuánta
    cuántos cuántas por dime dame muestra muéstrame recuérdame recuerda explica resume lista enumera
    busca cuéntame necesito che cosa chi quando dove quale quali perché come quanto quanti quante
    dimmi dammi elenca ricordami mostrami raccontami spiegami riassumi quem onde qual quais como
    quantos quantas diga diz dá mostre mostra lembre lembra resuma liste preciso wat waar wanneer
    welk waarom hoe hoeveel wie noem geef vertel toon herinner zeg beschrijf
    что кто когда где какой какая какое какие почему как сколько чей скажи покажи напомни расскажи
    назови перечисли дай подскажи опиши объясни найди скажите покажите напомните расскажите
    назовите перечислите дайте подскажите куда откуда чего кого кому
    무엇 뭐 누가 누구 언제 어디 어느 왜 어떻게 몇 ما ماذا من متى أين كيف لماذا هل كم أي
    أخبرني أخبريني أعطني أعطيني اذكر اذكري ذكرني ذكريني لخص اشرح اعرض أرني عدد أحتاج
"""
# Words that occur anywhere in a question or request in scripts without spaces, or with vowel signs.
_INSIDE = re.compile(
    "什么|甚麼|什麼|谁|誰|哪|多少|几|为何|怎么|怎麼|如何|吗|嗎|请问|告诉|告訴|列出|列举|总结|"
    "给我|給我|帮我|幫我|提醒我|说说|讲讲|[说讲列]一下|我需要|我想知道|概括|"
    "(?:请|請|麻烦)[你您]?[再把给給列说說讲講写寫总總提回描解介找查]|"
    "何|いつ|どこ|どの|どれ|なぜ|どう|誰|教えて|ですか|ますか|でしたか|ましたか|でしょうか|挙げて|"
    "見せて|まとめて|要約して|説明して|思い出させて|"
    "무엇|누구|언제|어디|알려|습니까|나요|말해 ?[줘주]|보여 ?[줘주]|나열해|정리해|"
    "상기시켜|설명해|요약해|찾아 ?[줘주]|"
    "อะไร|ใคร|เมื่อไ|ที่ไหน|ทำไม|อย่างไร|บอก|เท่าไ|กี่|ไหม|ช่วยเตือน|ช่วยสรุป|"
    "क्या|कौन|कब|कहाँ|कैसे|क्यों|कितन|बताओ|बताइए|बताएं|बता दो|याद दिला"
)
# A verb and its subject in the order of a question, and questions without a verb in front.
_PHRASED = re.compile(
    r"(?:\w+-(?:t-)?(?:je|tu|il|elle|on|nous|vous|ils|elles|ce|moi)\b|qu[’']|d[’']où\b"
    r"|(?:i|we)(?:[’']d| would)? (?:need|(?:want|like) to (?:know|hear|see))\b"
    r"|(?:ich|wir) (?:brauche|möchte|will|würde gern)\w* .*\b(?:wissen|adresse|liste|namen?)\b"
    r"|(?:ich|wir) brauchen?\b|j[’']ai besoin\b|je (?:veux|voudrais) savoir\b|me (?:diga|dê)\b"
    r"|ho bisogno\b|quiero saber\b|voglio sapere\b|quero saber\b|мне (?:нужн|нужен|надо)\w*)"
)
_POLITE = re.compile(
    r"(?:s[’']il (?:te|vous) pla[iî]t|por favor|per favore|by the way|of course|d[’']accord"
    r"|als je blieft|alsjeblieft|alstublieft|(?:one )?(?:quick|last|more) question|من فضلك)\W*"
)
_FIRST_WORD = re.compile(r"[\w]+(?:[’'][^\W_]+)*")
_SENTENCE = re.compile(r"(?<=[.!;])\s+|[。！；\n]+")


def normalise_letters(text: str) -> str:
    """Return text in lower case without accents and vowel marks, as people often type it."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(one for one in parts if not unicodedata.category(one).startswith("M"))
    return unicodedata.normalize("NFC", plain)


def _normalise_words(words: str) -> frozenset[str]:
    return frozenset(normalise_letters(words).split())


_LEADING = _normalise_words(f"{_GREETED} {_CONNECTING}")
_STARTS = _normalise_words(_BEGINNINGS)
_PREFIXED = tuple(normalise_letters("و ف ب").split())


def is_question_or_request(text: str) -> bool:
    """Return True if the text has a question mark, or begins as a question or request.

    In scripts without spaces, the words that ask may be anywhere. A request such as "Tell me …" or
    "列出…" is a question too. Of a text with several sentences, the first or the last one asks.
    """
    if any(mark in text for mark in "?？؟") or _INSIDE.search(text):
        return True
    sentences = [some for some in _SENTENCE.split(text) if some.strip()]
    return any(begins_as_question(some) for some in {*sentences[:1], *sentences[-1:]})


def begins_as_question(text: str) -> bool:
    """Return True if a sentence begins as a question, after greetings and connecting words."""
    rest = skip_leading_words(text)
    plain = normalise_letters(rest)
    first = _FIRST_WORD.match(plain)
    if first is None:
        return False
    word, head = first[0], re.split("[’']", first[0])[0]
    bare = word[1:] if word.startswith(_PREFIXED) else word
    return not _STARTS.isdisjoint({word, head, bare}) or _PHRASED.match(rest.casefold()) is not None


def skip_leading_words(text: str) -> str:
    """Return a text without its first words that greet, thank, ask politely or connect."""
    at = _skip_separators(text, 0)
    # Some letters are longer without case, which would move the places.
    plain = text.casefold()
    is_aligned = len(plain) == len(text)
    while at < len(text):
        polite = _POLITE.match(plain, at) if is_aligned else None
        if polite:
            at = polite.end()
            continue
        first = _FIRST_WORD.match(text, at)
        if first is None or normalise_letters(first[0]) not in _LEADING:
            break
        at = _skip_separators(text, first.end())
    return text[at:]


def _skip_separators(text: str, at: int) -> int:
    while at < len(text) and not (text[at].isalnum() or text[at] == "_"):
        at += 1
    return at
