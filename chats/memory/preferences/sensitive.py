"""Detect secrets in a text: payment cards, bank accounts, keys, passwords, identity numbers.

Preferences are sent with every message, so a text with a secret never becomes one. Checks follow
ISO/IEC 7812 (Luhn digit of cards) and ISO 13616 (IBAN, remainder 97).
"""

import re

_WORDS = re.compile(
    r"\b(?:pass(?:word|phrase|code)|pwd|api[ _-]?key|secret(?:[ _-]?key)?|access[ _-]?token|token"
    r"|pin(?:[ -]?(?:code|number))?|cvv|cvc|social security|ssn|passport (?:number|no)|credentials?"
    r"|passwort|kennwort|geheimzahl|reisepass(?:nummer)?|personalausweis(?:nummer)?|zugangsdaten"
    r"|mot de passe|code secret|num[ée]ro de passeport|contrase(?:ñ|n)a|clave|pasaporte"
    r"|codice segreto|passaporto|senha|palavra-passe|passaporte)\b"
    r"|парол|пин-?код|паспорт|密码|密碼|口令|护照|護照|パスワード|暗証番号|パスポート"
    r"|비밀번호|암호|여권|كلمة (?:السر|المرور)|الرقم السري|جواز",
    re.IGNORECASE,
)
_KEYS = re.compile(
    r"\b(?:sk|pk|rk|plm|ghp|gho|ghs|glpat|hf|npm|pypi|xox[abprs])[-_][A-Za-z0-9_-]{8,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bAIza[\w-]{20,}|\beyJ[\w-]{10,}\.[\w-]{10,}"
    r"|-----BEGIN [A-Z ]*KEY-----|\b\d{3}-\d{2}-\d{4}\b",
)
_DIGITS = re.compile(r"(?<!\d)\d(?:[ .-]?\d){12,18}(?!\d)")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b", re.IGNORECASE)
# A long run of mixed letters and digits: probably a key of an unknown kind.
_RANDOM = re.compile(r"(?<![\w/.-])(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[\w+/=-]{24,}(?![\w/-])")


def is_secret(text: str) -> bool:
    """Return True if a text seems to contain a card number, IBAN, key, password or the like."""
    if _WORDS.search(text) or _KEYS.search(text) or _RANDOM.search(text):
        return True
    numbers = (re.sub(r"\D", "", found) for found in _DIGITS.findall(text))
    return any(map(is_card, numbers)) or any(map(is_iban, _IBAN.findall(text)))


def is_card(digits: str) -> bool:
    """Return True if the digits pass the Luhn check and are not all equal.

    The caller ensures 13 to 19 digits.
    """
    doubled = (2 * int(digit) for digit in digits[-2::-2])
    total = sum(map(int, digits[-1::-2])) + sum(number // 10 + number % 10 for number in doubled)
    return len(set(digits)) > 1 and total % 10 == 0


def is_iban(text: str) -> bool:
    """Return True if a text, or its beginning, is an IBAN with valid check digits.

    The beginning is checked because the text may include words that follow the IBAN.
    """
    compact = text.replace(" ", "").upper()
    return any(_remainder(compact[:length]) == 1 for length in range(15, min(len(compact), 34) + 1))


def _remainder(iban: str) -> int:
    return int("".join(str(int(letter, 36)) for letter in iban[4:] + iban[:4])) % 97
