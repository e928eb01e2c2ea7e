"""Function words of European languages other than English, of Indonesian and of Hindi.

The tokenizer drops the stop words of English. In a library of mostly English and Chinese skills the
function words of another language are rare, and so weigh as much as names: any task in Italian
finds the one Italian skill.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from search.text.tokens import MARKS, STOP_WORDS, tokenize
from skills.unicode_normalization import normalize

_WORDS_BY_LANGUAGE = {
    "it": """il lo la gli le un uno una di del dello della dei degli delle da dal dalla
    in nel nella con su sul per tra fra ed ma se che chi cui non mi ti ci vi si ne ha ho hai
    hanno sono sei siamo era questo questa questi quello quella quale quali quanto quanta
    quanti quante come dove quando perché cosa fa fai fare posso puoi devo deve voglio vorrei
    mio mia tuo tua suo sua più meno molto anche""",
    "es": """el los las unos unas de al con por para que quien cual cuál como cómo cuando
    cuándo donde dónde porque qué mi mis tu tus su sus es son está están hay ser muy más pero
    si sí me te se lo le nos esto esta este eso esa ese quiero puedo puedes necesito hacer en
    sin sobre entre desde hasta ya han fue tengo""",
    "pt": """de que para por se o os um uma uns umas do dos das no nos na nas ao pelo pela em com
    sem qual quais quando onde porque meu minha seu sua é são está estão muito mais mas eu você
    ele ela isso esta este quero posso preciso fazer""",
    "fr": """de la que se le les un une en des du au aux et ou où mais donc ni dans sur sous avec
    sans pour par ce cet cette ces qui quoi dont quel quelle est sont être avoir je tu il elle nous
    vous ils mon ma mes ton ta tes son sa ses notre votre leur ne pas plus très comment
    pourquoi quand faire veux peux""",
    "de": """der die das den dem des ein eine einen einem einer eines und oder aber wenn
    als wie was wer wo warum wann ich du er sie es wir ihr mich mir dich dir ist sind war hat
    haben kann muss soll will nicht kein keine auf aus bei mit nach von vor zu zum zur für
    über unter durch im am auch noch nur sehr mein meine dein""",
    "id": """yang dan atau di ke dari untuk dengan pada dalam oleh ini itu saya aku
    kamu anda kita kami mereka dia adalah ada tidak bukan apa aja siapa mana kapan bagaimana
    kenapa berapa bisa mau akan sudah belum juga saja lagi sama buat gak ya tolong""",
    "ru": """и или но а не ни в во на с со к ко у о об от до по из за для при под без что
    как где когда кто почему чтобы это этот эта эти тот та те он она оно они мы вы я ты наш
    наша наше мой моя его её их все всё бы ли же то так уже ещё если есть нет нужно надо
    можно""",
    "hi": """का की के को से में पर और या एक यह ये वह वे इस उस इन उन है हैं हो हूँ था थी थे
    मैं मुझे मेरा मेरी मेरे हम हमें आप तुम कि जो तो भी ही नहीं न क्या कैसे कब कौन क्यों कर करें
    करो करना करता लिए साथ तक ने चाहिए कृपया""",
}
_LANGUAGES_BY_WORD: dict[str, list[str]] = {}
for _language, _words in _WORDS_BY_LANGUAGE.items():
    for _word in _words.split():
        _LANGUAGES_BY_WORD.setdefault(_word, []).append(_language)
_TERMS = frozenset(term for word in _LANGUAGES_BY_WORD for term in tokenize(word))
_LETTERS = re.compile(rf"[^\W\d_]+(?:[{MARKS}][^\W\d_]*)*")
_MIN_WORDS = 2
"""Minimum number of function words for a text to be in another language."""


def drop_function_words(terms: Sequence[str], text: str) -> list[str]:
    """Return the terms of a text in reading order without its function words.

    All terms are kept unless the text has at least two words of the lists, and more of them than
    English stop words, and if nothing else would be left.
    """
    content = [term for term in terms if term not in _TERMS] if count_function_words(text) else []
    return content or list(terms)


def count_function_words(text: str) -> Counter[str]:
    """Return the number of function words by language; empty if the text is in none of them."""
    composed = normalize("NFKC", text)
    words = [word.lower() for word in _LETTERS.findall(composed)]
    foreign = [word for word in words if word in _LANGUAGES_BY_WORD]
    if len(foreign) < max(_MIN_WORDS, 1 + sum(word in STOP_WORDS for word in words)):
        return Counter()
    return Counter(language for word in foreign for language in _LANGUAGES_BY_WORD[word])
