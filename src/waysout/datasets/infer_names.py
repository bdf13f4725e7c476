"""What the name of a column tells: whose it is not to change, and what it counts."""

from __future__ import annotations

import re
from collections.abc import Collection

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")

# Kinds of features that nobody can be asked to change: their words (English, then the basics of
# German, French and Spanish), and why. A column belongs to the first kind that has one of its
# words.
_FIXED: dict[str, str] = {
    "nobody can change when and where they were born": (
        "birth birthday birthdate birthplace born dob yob geburtsdatum geburtsjahr geburtsort "
        "naissance nacimiento"
    ),
    "nobody can change their age": "age ages alter âge edad",
    "nobody is asked to change their sex": (
        "sex sexe sexo gender male female transgender geschlecht genre género genero"
    ),
    "nobody can change their origin": (
        "race racial ethnic ethnicity tribe ancestry hispanic latino caste skin complexion "
        "herkunft hautfarbe raza etnia casta"
    ),
    "nobody is asked to change their nationality": (
        "nationality citizenship citizen native foreign foreigner immigrant immigration migrant "
        "nationalität nationalitaet staatsangehörigkeit staatsangehoerigkeit nationalité "
        "nationalite nacionalidad ausländer auslaender étranger etranger extranjero"
    ),
    "nobody is asked to change what they believe": (
        "religion religious faith konfession religión"
    ),
    "nobody is asked to marry or to part": (
        "marital married marriage spouse divorced widowed civil familienstand verheiratet"
    ),
    "nobody can change whether they are disabled": (
        "disability disabilities disabled handicap handicapped behinderung behindert discapacidad"
    ),
    "nobody is asked about a pregnancy": (
        "pregnant pregnancy pregnancies maternity schwanger schwangerschaft enceinte grossesse "
        "embarazo embarazada"
    ),
    "nobody is asked to change whom they love": "orientation lgbt",
    "nobody can change what they served": "veteran veterans",
    "how many depend on a person is not asked to change": (
        "children kids dependents dependants sibsp parch siblings kinder enfants hijos"
    ),
}  # fmt: skip
_REASONS = {word: why for why, words in _FIXED.items() for word in words.split()}
_AGE = "nobody can change their age"
_OF_A_THING = {
    "account", "building", "business", "car", "company", "contract", "credit", "equipment", "file",
    "house", "line", "loan", "machine", "policy", "property", "trade", "vehicle",
}  # fmt: skip
_ONLY_TIME = "only time changes an age"
_ONLY_TIME_THERE = "only time changes how long somebody was there"
_NAMES = {
    "colour": "it may be the colour of a person's skin",
    "color": "it may be the colour of a person's skin",
    "years employed": _ONLY_TIME_THERE,
    "months employed": _ONLY_TIME_THERE,
    "tenure": _ONLY_TIME_THERE,
    "tenure months": _ONLY_TIME_THERE,
    "tenure years": _ONLY_TIME_THERE,
    "seniority": _ONLY_TIME_THERE,
    "family status": "nobody is asked to marry or to part",
    "first language": "nobody can change their origin",
    "mother tongue": "nobody can change their origin",
    "height": "nobody can change their height",
    "height cm": "nobody can change their height",
    "household size": "how many depend on a person is not asked to change",
    "family size": "how many depend on a person is not asked to change",
    "family members": "how many depend on a person is not asked to change",
    "relationship": "nobody is asked to marry or to part",
}
_PAST = {
    "prior", "priors", "previous", "past", "history", "historical", "delinq", "delinquent",
    "delinquency", "delinquencies", "default", "defaults", "defaulted", "conviction", "convictions",
    "arrest", "arrests", "arrested", "bankruptcy", "bankruptcies", "eviction", "evictions",
    "missed", "late", "absences", "criminal", "claims", "graduation",
}  # fmt: skip
_HAPPENED = "what has happened cannot be undone"
# Beside these a word tells what people think, not who they are: rate_marriage.
_RATINGS = {"rate", "rating", "score", "satisfaction", "opinion"}
# What is worked towards, or got rid of; a name with other words beside these tells nothing.
_UP = {
    "income", "salary", "wage", "wages", "earnings", "pay", "savings", "assets", "education",
    "degree", "degrees", "experience", "exp", "qualification", "guarantor", "cosigner",
    "einkommen", "gehalt", "salaire", "revenu", "ingresos",
}  # fmt: skip
_DOWN = {
    "debt", "debts", "arrears", "overdue", "smoker", "smoking", "smokes", "commute", "commuting",
    "schulden", "dette", "dettes", "deudas",
}  # fmt: skip
_NEUTRAL = {
    "annual", "annually", "monthly", "month", "yearly", "year", "years", "total", "net", "gross",
    "applicant", "coapplicant", "co", "household", "person", "customer", "client", "employee", "in",
    "of", "level", "num", "number", "amount", "balance", "other", "outstanding", "current", "eur",
    "usd", "k", "log", "work", "working", "has", "is", "hh", "rent", "yrs", "km",
    "miles", "minutes", "time", "distance", "to", "length",
}  # fmt: skip
_IDS = {"id", "ids", "uid", "uuid", "guid", "unnamed", "index"}
_CODES = {
    "id", "education", "occupation", "job", "region", "state", "country", "city", "code", "type",
    "category", "class", "group", "branch", "zip", "postcode", "sex", "gender", "race", "marital",
    "marriage", "religion", "nationality",
}  # fmt: skip
_QUANTITIES = {
    "num", "number", "count", "score", "years", "months", "days", "amount", "rate", "percent",
}  # fmt: skip


def words_of(name: str) -> set[str]:
    """Return the words of a name, in lower case.

    >>> sorted(words_of("PersonAge_in-years")), sorted(words_of("mileage"))
    (['age', 'in', 'person', 'years'], ['mileage'])
    """
    return {word.casefold() for word in _WORD.findall(name)}


def why_fixed(name: str) -> str:
    """Return why a column of this name is nobody's to change; empty where it may be.

    >>> why_fixed("applicant_age"), why_fixed("wage"), why_fixed("account_age")
    ('nobody can change their age', '', 'only time changes an age')
    """
    words = words_of(name)
    named = _NAMES.get(" ".join(word.casefold() for word in _WORD.findall(name)), "")
    # In the order of the kinds: a date of birth is not an age.
    found = next((why for word, why in _REASONS.items() if word in words), named)
    if found == _AGE and words & _OF_A_THING:
        return _ONLY_TIME
    if found:
        return "" if words & _RATINGS else found
    return _HAPPENED if words & _PAST else ""


def direction_of(name: str) -> str:
    """Return which way of a quantity of this name anybody would want: up, down, or empty.

    >>> direction_of("ApplicantIncome"), direction_of("other_debts"), direction_of("debt_to_income")
    ('up', 'down', '')
    """
    told = words_of(name) - _NEUTRAL
    ways = [way for way, words in (("up", _UP), ("down", _DOWN)) if told and told <= words]
    return ways[0] if ways else ""


def is_identifier(name: str) -> bool:
    """Whether a column is named like an identifier."""
    return bool(words_of(name) & _IDS)


def is_code(name: str) -> bool:
    """Whether whole numbers under this name are likely codes rather than a quantity."""
    words = words_of(name)
    return bool(words & _CODES) and not words & _QUANTITIES


def starts(names: Collection[str]) -> list[str]:
    """Return what two or more names begin with, up to a separator, the shortest first.

    >>> starts(["job_cook", "job_clerk", "job_self_baker", "job_self_smith", "own"])
    ['job_', 'job_self_']
    """
    found: dict[str, int] = {}
    for name in names:
        for mark in re.finditer(r"[_\-.=: |/]+", name):
            if mark.start() and mark.end() < len(name):
                found[name[: mark.end()]] = found.get(name[: mark.end()], 0) + 1
    return sorted((start for start, count in found.items() if count > 1), key=len)
