"""The SQLite files that mkbench keeps: the history of one machine, and the store of a fleet.

Each has its own tables and its own PRAGMA user_version; a file of something else or of another version is refused.
"""

import pathlib
import sqlite3


class BadStore(sqlite3.DatabaseError):
    """An SQLite file that is not the store that was asked for."""


def opened(path: pathlib.Path, version: int, tables: dict, what: str) -> sqlite3.Connection:
    """A store with these tables (name -> columns), made if the file is new. Raises sqlite3.Error."""
    base = sqlite3.connect(path, timeout=30)
    base.row_factory = sqlite3.Row
    found = base.execute("PRAGMA user_version").fetchone()[0]
    names = {row["name"] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if found == version and set(tables) <= names:
        return base
    if found != 0 or names:
        raise BadStore(f"not {what}: found user_version {found} and tables {sorted(names)}, "
                       f"wanted user_version {version}")
    with base:
        base.execute("BEGIN")
        for name, columns in tables.items():
            base.execute(f"CREATE TABLE {name} ({columns})")
        base.execute(f"PRAGMA user_version = {version}")
    return base


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def columns_of(base: sqlite3.Connection, table: str) -> dict:
    """column -> SQLite's type"""
    return {row["name"]: row["type"] for row in base.execute(f"PRAGMA table_info({table})")}


def insert(base: sqlite3.Connection, table: str, rows: list, verb: str = "INSERT") -> None:
    """Rows as mappings; a column that a row does not have is NULL."""
    names = list(columns_of(base, table))
    base.executemany(f"{verb} INTO {table} ({', '.join(map(quoted, names))}) VALUES ({', '.join('?' * len(names))})",
                     [[row.get(name) for name in names] for row in rows])


def add_columns(base: sqlite3.Connection, table: str, rows: list) -> None:
    """Adds columns for fields that only rows of a later mkbench have; older rows have NULL there."""
    known = columns_of(base, table)
    for name, value in (item for row in rows for item in row.items()):
        if name not in known:
            known[name] = "REAL" if isinstance(value, (int, float, type(None))) else "TEXT"
            base.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {known[name]}")
