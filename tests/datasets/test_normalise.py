from __future__ import annotations

from waysout.datasets.registry import ADULT_COLUMNS, tidy, tidy_adult, tidy_credit

ADULT = (
    b"39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male,"
    b" 2174, 0, 40, United-States, <=50K\n"
    b"50, ?, 83311, Bachelors, 13, Married-civ-spouse, Exec-managerial, Husband, White, Male, 0, 0,"
    b" 13, United-States, >50K\n\n"
)


def test_tidy_undoes_spaces_line_ends_mark_and_missing_newline() -> None:
    kaggle = (
        b"\xef\xbb\xbfloan_id, education, loan_status\r\n"
        b"1, Not Graduate, Approved\r\n2, Graduate, Rejected"
    )
    plain = b"loan_id,education,loan_status\n1,Not Graduate,Approved\n2,Graduate,Rejected\n"
    assert tidy(kaggle, "f") == plain
    assert tidy(plain, "f") == plain


def test_adult_gets_its_header_and_loses_spaces_and_blank_line() -> None:
    made = tidy_adult(ADULT, "adult.data")
    lines = made.decode().split("\n")
    assert lines[0] == ",".join(ADULT_COLUMNS)
    assert lines[1].startswith("39,State-gov,77516,Bachelors,13,Never-married")
    assert lines[2].endswith(",13,United-States,>50K")
    assert lines[3:] == [""]
    assert tidy_adult(made, "adult.csv") == made


def test_credit_amounts_become_whole() -> None:
    raw = b"ID,LIMIT_BAL,PAY_0,BILL_AMT1\n1,20000.0,-1,-12.00\n2,1.5,0,0.0\n"
    made = tidy_credit(raw, "f")
    assert made == b"ID,LIMIT_BAL,PAY_0,BILL_AMT1\n1,20000,-1,-12\n2,1.5,0,0\n"
    assert tidy_credit(made, "f") == made
