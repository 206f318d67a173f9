"""The folder of a sweep: results in SQLite as they come, under a lock that dies with its process.

Results are kept by key, so whatever sweep is run into a folder finds those that its points share
with earlier ones. `points` says which keys the latest sweep is made of.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.sweep.points import Points
from planner.sweep.rows import COLUMNS, Cells, columns_of

FILE, LOCK = "sweep.sqlite", "sweep.lock"
SCHEMA = 1
APPLICATION = 0x706C6E73  # "plns"

_TABLES = (
    "CREATE TABLE results (key TEXT PRIMARY KEY, finished TEXT NOT NULL, program TEXT NOT NULL, "
    "status TEXT NOT NULL, final INTEGER NOT NULL, cells TEXT NOT NULL, plan BLOB)",
    "CREATE TABLE points (point INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, "
    "axis_values TEXT NOT NULL)",
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: the system frees it when this process ends, however it ends.

    Raises:
        InputError: another sweep holds it, or the folder cannot be made or written to.
    """
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip()
            raise InputError(
                f"another sweep writes into this folder{f' ({holder})' if holder else ''}",
                path=str(folder), key="--out",
                allowed="a folder of its own, or the same one once that sweep has ended",
            ) from None  # fmt: skip
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield


def _unusable(folder: Path, why: str) -> InputError:
    return InputError(
        f"cannot be written: {why}", path=str(folder), key="--out",
        allowed="a folder that can be made and written to",
    )  # fmt: skip


class Store:
    """The results of a folder, written by one process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with self._writing():
            self._db = sqlite3.connect(self.path, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:  # a full disk, a file that is no database
            raise _unusable(self.path, str(error)) from None

    def _open(self) -> None:
        if _is_empty(self._db):
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(f"PRAGMA application_id = {APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {SCHEMA}")
            for table in _TABLES:
                self._db.execute(table)
            self._db.execute("COMMIT")
        _require_ours(self._db, self.path)
        # A killed process loses nothing that was written; a power cut at most the last rows.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")

    def begin(self, points: Points) -> set[str]:
        """Make these the folder's points; the keys of those that are finished."""
        settings = points.settings
        about = {
            "name": points.name,
            "axes": json.dumps(points.axes),
            "top_k": str(settings.top_k),
            "time_limit_seconds": json.dumps(settings.time_limit_seconds),
        }
        rows = [(point.number, point.key, json.dumps(point.values)) for point in points.points]
        with self._writing():
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM points")
            self._db.executemany("INSERT INTO points VALUES (?, ?, ?)", rows)
            self._db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())
            self._db.execute("COMMIT")
            found = self._db.execute(
                "SELECT key FROM points JOIN results USING (key) WHERE results.final"
            )
            return {key for (key,) in found}

    def add(
        self, key: str, program: str, cells: Cells, plan: bytes | None, final: bool = True
    ) -> None:
        """Keep a result; one that is not final is sought again by the next run."""
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        row = (key, finished, program, cells["status"], final, json.dumps(cells), plan)
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Leave one file that can be read where nothing can be written."""
        # where somebody reads it at this moment the write-ahead log stays beside
        with suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def write_view(self) -> None:
        """Let `SELECT * FROM sweep` show the rows, a column for each of theirs."""
        (text,) = self._db.execute("SELECT value FROM about WHERE name = 'axes'").fetchone()
        cells = self._db.execute("SELECT cells FROM points JOIN results USING (key)")
        names = columns_of(json.loads(one) for (one,) in cells)
        axes = json.loads(text)
        columns = [
            "point", "key", *(_extracted("axis_values", axis) for axis in axes),
            *(_extracted("cells", name) for name in names or COLUMNS if name not in axes),
        ]  # fmt: skip
        self._db.executescript(
            f"DROP VIEW IF EXISTS sweep; CREATE VIEW sweep AS SELECT {', '.join(columns)} "
            "FROM points JOIN results USING (key) ORDER BY point;"
        )


def _extracted(column: str, name: str) -> str:
    path = '$."' + name.replace("'", "''") + '"'
    quoted = '"' + name.replace('"', '""') + '"'
    return f"json_extract({column}, '{path}') AS {quoted}"


def _is_empty(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _no_sweep(folder: Path) -> InputError:
    return InputError(
        "no sweep is here", path=str(folder), allowed="a folder that `planner sweep --out` wrote"
    )


def _require_ours(db: sqlite3.Connection, path: Path) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    if (application, schema) != (APPLICATION, SCHEMA):
        raise InputError(
            "not a sweep's results, or those of another version",
            path=str(path),
            allowed="the folder of a sweep of this version, or a new one",
        )


# ---------------------------------------------------------------- reading


class Reader:
    """What a folder holds, also while a sweep writes into it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        if not self.path.is_file():
            raise _no_sweep(folder)

    def _rows(self, query: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        place = self.path.resolve().as_uri()
        try:
            for mode in ("mode=ro", "mode=ro&immutable=1"):  # where the log cannot be opened
                try:
                    with closing(sqlite3.connect(f"{place}?{mode}", uri=True)) as db:
                        if _is_empty(db):
                            raise _no_sweep(self.path.parent)
                        _require_ours(db, self.path)
                        return db.execute(query, tuple(values)).fetchall()
                except sqlite3.OperationalError as error:
                    failure = error
            raise failure
        except sqlite3.Error as error:
            raise InputError(
                f"cannot be read: {error}", path=str(self.path), allowed="a sweep's results"
            ) from None

    def about(self) -> dict[str, str]:
        """What the sweep is: name, axes, settings."""
        found = dict(self._rows("SELECT name, value FROM about"))
        if not found:  # it is about to begin
            raise _no_sweep(self.path.parent)
        return found

    def number_of_points(self) -> int:
        """How many points the sweep has, finished or not."""
        return int(self._rows("SELECT count(*) FROM points")[0][0])

    def rows(self) -> list[Cells]:
        """Point, key, axes and cells of what is finished, in the order of the points."""
        found = self._rows(
            "SELECT point, key, axis_values, cells FROM points JOIN results USING (key) "
            "ORDER BY point"
        )
        return [
            {"point": point, "key": key, **json.loads(values), **_beside(values, cells)}
            for point, key, values, cells in found
        ]

    def plan(self, point: int) -> bytes | None:
        """The compressed plan of a point."""
        found = self._rows(
            "SELECT plan FROM points JOIN results USING (key) WHERE point = ?", (point,)
        )
        if not found:
            raise InputError(
                f"no finished point {point}", path=str(self.path), value=point,
                allowed=f"a finished point from 0 to {self.number_of_points() - 1}",
            )  # fmt: skip
        data: bytes | None = found[0][0]
        return data


def _beside(values: str, cells: str) -> Cells:
    """Cells that do not hide an axis of the same name: num_accelerators, model, topology."""
    axes = json.loads(values)
    return {name: value for name, value in json.loads(cells).items() if name not in axes}
