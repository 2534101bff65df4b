"""Detects secrets in text: payment cards, bank accounts, keys, passwords, identity numbers.

Preferences are sent with every message, so text that contains a secret never becomes one. Checks
follow ISO/IEC 7812 (Luhn check digit of cards) and ISO 13616 (IBAN, remainder 97).
"""

import re
import unicodedata

# Words that name a secret. A text with one of them is a secret, whatever else it says.
_WORDS = re.compile(
    r"\b(?:pass(?:[ -]?word|phrase|code)s?|pwd|api[ _-]?keys?|secret(?:[ _-]?key)?"
    r"|(?:private|wi-?fi|wlan|network|encryption|recovery|licen[cs]e)[ _-]keys?"
    r"|(?:seed|recovery) (?:phrase|words)|access[ _-]?tokens?|token"
    r"|pin(?:[ -]?(?:code|number)s?)?|cvv|cvc|social security|ssn|credentials?"
    r"|passw[oö]rt(?:e|er|s)?|passwörter|kennw[oö]rt(?:er)?|geheim(?:wort|zahl|nummer)"
    r"|(?:wlan|wi-?fi|netzwerk)-?(?:schlüssel|passwort|kennwort)|zugangsdaten"
    r"|mots? de passe|mdp|code secret|contrase[ñn]as?|claves?"
    r"|codice segreto|parola d[’']ordine|senhas?|palavras?-passe)\b"
    r"|\blog-?ins?(?: (?:name|data|details|info))? ?(?:is|are|was|ist|war|est|es|è|[:=])(?!\w)"
    r"|парол|пин-?код|(?<!\w)пин(?!\w)|密码|密碼|口令|パスワード|パスコード|暗証番号"
    r"|비밀번호|비번|패스워드|암호|كلمة (?:السر|المرور)|(?:الرقم|رقمي) السري",
    re.IGNORECASE,
)
# Words that name a document, an account or a code. With its number, a text is a secret.
_NUMBERED = re.compile(
    r"\b(?:passports?|reisep[aä]ss(?:e|nummer)?|pass(?=\b.{0,30}\bnummer)"
    r"|personalausweis(?:nummer)?|passeport|pasaporte|passaporto|passaporte"
    r"|(?:identity|id) (?:card|number)|carte d[’']identité|carta d[’']identità"
    r"|documento de identidad|(?:drivers?|driver[’']s|driving) licen[cs]e|führerschein(?:nummer)?"
    r"|(?:credit|debit|bank|gift) ?cards?|card number|kreditkarte(?:nnummer)?|carte bancaire"
    r"|tarjeta|carta di credito|cart[ãa]o"
    r"|(?:bank )?account(?: number| no\.?)?|sort code|routing number|kontonummer|iban"
    r"|(?:tax|insurance|medical|health|security|national|personal|customer|patient)"
    r"[ -](?:id|number|code|no\.?)"
    r"|(?:national|social) insurance|steuer(?:nummer|-?id)|sozialversicherung\w*"
    r"|sécurité sociale|seguridad social|codice fiscale|cpf|cnpj|dni|nie|nif|bsn|nir|nino"
    r"|(?:2fa|mfa|otp|verification|access|entry|door|alarm|login|backup|unlock|safe)"
    r"[ -]?(?:code|pin)s?|pins"
    r"|c[óo]digo de (?:acceso|acesso|seguridad|segurança)|code d[’']accès|zugangscode)\b"
    r"|паспорт|снилс|инн(?!\w)|номер карты|护照|護照|身份证|身分證|银行卡|銀行卡|信用卡"
    r"|验证码|驗證碼|银行账[号户]|銀行帳[號戶]|储蓄卡|儲蓄卡|社保|社會保險|医保|健保卡|[驾駕][驶駛]?[证證照]"
    r"|工资卡|卡号|卡號|门禁码|門禁碼|取件码|激活码|序列号"
    r"|マイナンバー|パスポート|口座番号|여권|주민등록|계좌|카드 ?번호|جواز|بطاقة|حساب",
    re.IGNORECASE,
)
# A word with at least three digits, or groups of digits. A year does not count.
_NUMBER = re.compile(r"(?<!\w)(?!(?:19|20)\d\d(?!\w))(?:(?:\w*\d){3}|\d\d(?:[ .-]\d+)+)")
_KEYS = re.compile(
    r"\b(?:sk|pk|rk|plm|gh[opsru]|github_pat|glpat|hf|npm|pypi|xox[abeprs]|xapp|SG|ya29|r8|gsk|tvly"
    r"|lin_api|dop_v1|shp[a-z]{2}|sq0[a-z]{3}|key|whsec|nvapi|pplx|xai|figd|ntn|secret)"
    r"[-_.][A-Za-z0-9_.-]{8,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bAIza[\w-]{20,}|\beyJ[\w-]{10,}\.[\w-]{10,}"
    r"|\bBearer +[\w.~+/-]{8,}|\b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@"
    r"|-----BEGIN [A-Z ]+-----|\b\d{3}[- ]\d{2}[- ]\d{4}\b",
)
# The border between a script that puts no space around numbers and words of others, and these.
_UNSPACED = r"[\u0e00-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\uffff]"
_BORDER = re.compile(rf"(?<={_UNSPACED})(?=[0-9A-Za-z])|(?<=[0-9A-Za-z])(?={_UNSPACED})")
# Digits of a card, in groups with any signs between them.
_DIGITS = re.compile(r"(?<!\d)\d(?:[^\w\n]{0,3}_?\d){12,18}(?!\d)")
# Each place counts, because a word before the IBAN may look like its country.
_IBAN = re.compile(
    r"(?:(?<!\w)|(?<=IBAN))(?=([A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}))", re.IGNORECASE | re.ASCII
)
# The length of an IBAN by country, from the registry of ISO 13616.
_COUNTRIES = {
    15: "NO", 16: "BE", 18: "DK FI FK FO GL NL SD", 19: "MK SI", 20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA", 23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "LY PT ST", 26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM", 28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC", 33: "RU",
}  # fmt: skip
_IBAN_LENGTHS = {
    country: length for length, countries in _COUNTRIES.items() for country in countries.split()
}
# A long run of mixed letters and digits: probably a key of an unknown kind.
_RANDOM = re.compile(r"(?<![\w/.-])(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[\w+/=-]{24,}(?![\w/-])")


def is_secret(text: str) -> bool:
    """Return True if the text may contain a secret, such as a card number, IBAN or password."""
    plain = _BORDER.sub(" ", _to_plain_signs(text))
    if any(pattern.search(plain) for pattern in (_WORDS, _KEYS, _RANDOM)):
        return True
    named = _NUMBERED.search(plain)
    if named and _NUMBER.search(plain, named.end()):
        return True
    numbers = (re.sub(r"\D", "", found) for found in _DIGITS.findall(plain))
    return any(map(is_card, numbers)) or any(map(is_iban, _IBAN.findall(plain)))


def _to_plain_signs(text: str) -> str:
    """Return text with plain digits, letters, spaces and hyphens, without invisible characters."""
    compatible = unicodedata.normalize("NFKC", text)
    return "".join(map(_to_plain_sign, compatible))


def _to_plain_sign(sign: str) -> str:
    category = unicodedata.category(sign)
    if category == "Nd":
        return str(unicodedata.digit(sign))
    return {"Cf": "", "Pd": "-", "Zs": " "}.get(category, sign)


def is_card(digits: str) -> bool:
    """Return True if the digits pass the Luhn check and are not all equal.

    The caller ensures 13 to 19 digits.
    """
    doubled = (2 * int(digit) for digit in digits[-2::-2])
    total = sum(map(int, digits[-1::-2])) + sum(number // 10 + number % 10 for number in doubled)
    return len(set(digits)) > 1 and total % 10 == 0


def is_iban(text: str) -> bool:
    """Return True if the text, or its beginning, is an IBAN with valid check digits.

    The beginning is checked because the text may include words that follow the IBAN.
    """
    compact = text.replace(" ", "").replace("-", "").upper()
    iban = compact[: _IBAN_LENGTHS.get(compact[:2], 0)]
    return len(iban) == _IBAN_LENGTHS.get(iban[:2]) and _remainder(iban) == 1


def _remainder(iban: str) -> int:
    return int("".join(str(int(letter, 36)) for letter in iban[4:] + iban[:4])) % 97
