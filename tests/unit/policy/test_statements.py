"""SQL statements that write, by the rules of MySQL and MariaDB, and by the rules of other databases."""

from __future__ import annotations

import pytest

from django_mqueue.protocol.acknowledging.statements import writes

EVERYWHERE = {
    "INSERT INTO t VALUES (%s)": True,
    "\n\treplace into t values (1)": True,
    "((UPDATE t SET a = 1": True,
    "-- why\n--\n/* and\nwhy */ DELETE FROM t": True,
    "/* unended DELETE FROM t": False,
    "Create Table t (a INT)": True,
    "LOAD DATA INFILE 'a' INTO TABLE t": True,
    "RENAME TABLE t TO u": True,
    "SELECT 1;; /**/ TRUNCATE t": True,
    "SELECT ';', 'it''s; DELETE FROM t' FROM t; SELECT 2;": False,
    'SELECT a AS "x; DELETE FROM t" FROM t': False,
    "SELECT updated FROM insert_log": False,
    "SELECT * FROM t FOR UPDATE": False,
    "SAVEPOINT delete_": False,
    "": False,
    "WITH x AS (SELECT 1), y (a, b) AS (SELECT 1, 2) DELETE t FROM t JOIN x": True,
    "WITH RECURSIVE x AS (SELECT 1) /* then */ UPDATE t SET a = 1": True,
    "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone": True,
    "(WITH x AS (SELECT 1) SELECT (REPLACE('a', 'b', 'c')) FROM x)": False,
    "WITH x (update, b) AS (SELECT 1, 2) SELECT * FROM x": False,
    "WITH x AS (SELECT 1) SELECT * FROM x; SELECT 1": False,
}
MYSQL = {
    r"SELECT 'it\'s; DELETE FROM t'": False,
    r"SELECT 'a\\'; DELETE FROM t": True,
    "#DELETE\nSELECT 1": False,
    "# why\nDELETE FROM t": True,
    "/*!DELETE FROM t */": True,
    "/*!50000 DELETE */ FROM t": True,
    "/*M!100100 DELETE */ FROM t": True,
    "/*+ MAX_EXECUTION_TIME(9) */ SELECT 2*/* ; DELETE FROM t; */3": False,
    "SELECT 1--1; DELETE FROM t": True,
}
OTHERS = {
    r"SELECT 'a\'; DELETE FROM t": True,
    "/*! DELETE FROM t */ SELECT 1": False,
    "SELECT 1--1; DELETE FROM t": False,
    "SELECT $$; DELETE FROM t$$, $a$ ; DELETE FROM t; $$ $a$": False,
}


@pytest.mark.parametrize(("sql", "expected"), (EVERYWHERE | MYSQL).items())
def test_on_mysql(sql: str, expected: bool) -> None:
    assert writes(sql, mysql=True) == expected


@pytest.mark.parametrize(("sql", "expected"), (EVERYWHERE | OTHERS).items())
def test_on_other_databases(sql: str, expected: bool) -> None:
    assert writes(sql, mysql=False) == expected
