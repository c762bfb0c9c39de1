from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.memory.text import LANGUAGES, TERM_CHARS, analyse, date_words, query_terms

# Text as people and machines write it: any character at all, and the ones that analysis treats apart more often.
TEXTS = st.text() | st.text(alphabet="ab9A_-.@'’:,/+ é我机가あน้\u0301\u200d\u00ad\u0000\ud800İß👩", max_size=60)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("She walks, walked, is walking", ["she", "walk", "walk", "is", "walk"]),
        ("CAFÉ Cafe\u0301 cafe", ["cafe", "cafe", "cafe"]),
        ("ＦＵＬＬ ﬁne Straße", ["full", "fine", "strass"]),
        ("ORD-4471-B", ["ord-4471-b", "ord", "4471", "b"]),
        ("ana.lopez@example.com", ["ana.lopez@example.com", "ana", "lopez", "exampl", "com"]),
        ("user_name __init__", ["user_name", "user", "name", "init"]),
        ("v2.1", ["v2.1", "v2", "1"]),
        ("3.14 8:30 192.168.1.10", ["3.14", "8:30", "192.168.1.10"]),
        ("$1,000 1000", ["1000", "1000"]),
        ("8am 20mg 9th", ["8", "am", "20", "mg", "9"]),
        ("part-time e-mail p.m. U.S.A.", ["part", "time", "email", "pm", "usa"]),
        ("Anna's o'brien don’t can't", ["anna", "o", "brien", "do", "can"]),
        ("went gone children", ["go", "go", "child"]),
        ("a\x00b\x07c\ud800d", ["a", "b", "c", "d"]),
        ("👩‍👩‍👧 family 🐶", ["famili"]),
        ("\u202bשָׁלוֹם עולם\u202c", ["שלום", "עולם"]),
        ("नमस्ते दुनिया।", ["नमस्ते", "दुनिया"]),
        ("Привет, ёлка", ["привет", "елка"]),
        ("我有猫", ["我", "有", "猫", "我有", "有猫"]),
        ("iPhone手机", ["iphon", "手", "机", "手机"]),
        ("x" * 100, ["x" * TERM_CHARS]),
        ("... !? \n\t", []),
        ("", []),
    ],
)
def test_an_entry_is_indexed_by_these_terms(text: str, terms: list[str]) -> None:
    assert analyse(text, "english") == terms


@pytest.mark.parametrize(
    ("language", "text", "terms"),
    [
        ("english", "When does she take her pills?", ["take", "pill"]),
        ("english", "what is it", ["what", "is", "it"]),
        ("english", "tea tea TEA", ["tea"]),
        ("english", "what happened in May", ["happen", "may"]),
        ("french", "Où est l’école ?", ["ecol"]),
        ("french", "préférée préférés", ["prefer"]),
        ("german", "Welche Häuser mag er?", ["haus", "mag"]),
        ("spanish", "¿Dónde están las canciones?", ["cancion"]),
        ("simple", "when walking", ["when", "walking"]),
        ("english", "猫", ["猫"]),
        ("english", "猫叫什么", ["猫叫", "叫什", "什么"]),
        ("english", "한국어", ["한국", "국어"]),
        ("english", "ラーメン", ["ラー", "ーメ", "メン"]),
        ("english", "แมว", ["แม", "มว"]),
    ],
)
def test_a_query_asks_for_these_terms(language: str, text: str, terms: list[str]) -> None:
    assert query_terms(text, language) == terms


@pytest.mark.parametrize(
    ("language", "question"),
    [
        ("english", "what happened on 9 March"),
        ("english", "March 9th"),
        ("english", "2026-03-09"),
        ("english", "Monday"),
        ("french", "le 9 mars"),
        ("german", "Montag, 9. März"),
        ("spanish", "lunes 9 de marzo"),
        ("polish", "9 March"),
    ],
)
def test_a_date_is_found_in_the_words_of_the_language(language: str, question: str) -> None:
    indexed = set(analyse(date_words(date(2026, 3, 9), language), language))

    assert indexed.issuperset(term for term in query_terms(question, language) if term != "happen")


@given(text=TEXTS, language=st.sampled_from(LANGUAGES))
def test_any_text_in_any_language_gives_terms_that_postgres_can_store(text: str, language: str) -> None:
    for term in analyse(text, language) + query_terms(text, language):
        assert term
        assert "\x00" not in term
        assert len(term.encode()) <= TERM_CHARS * 4


@given(text=TEXTS, language=st.sampled_from(["english", "french", "simple"]))
def test_every_word_of_a_text_finds_it(text: str, language: str) -> None:
    indexed = set(analyse(text, language))

    for word in text.split():
        assert indexed.issuperset(query_terms(word, language))


@given(text=TEXTS)
def test_a_query_names_each_term_once(text: str) -> None:
    terms = query_terms(text, "english")

    assert len(terms) == len(set(terms))


@given(text=TEXTS)
def test_a_text_of_words_alone_is_never_an_empty_query(text: str) -> None:
    assert bool(query_terms(text, "english")) == bool(analyse(text, "english"))
