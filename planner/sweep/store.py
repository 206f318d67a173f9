"""The folder of a sweep: results in SQLite as they come, under a lock that dies with its process.

Results are stored by key, so that a sweep that is run into a folder reuses those that its points
share with earlier sweeps. The table `points` has the keys of the latest sweep.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

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

_Answer = TypeVar("_Answer")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder; the system unlocks it when this process ends, however it ends.

    Raises:
        InputError: another sweep has locked it, or the folder cannot be made or written to.
    """
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise _unusable(folder, error.strerror or str(error)) from None
    with file:
        try:
            # unlike a lock file's existence, this cannot be left behind by a killed process
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip()
            raise InputError(
                f"another sweep writes into this folder{f' ({owner})' if owner else ''}",
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
            # all tables or none, whenever the process is killed
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(f"PRAGMA application_id = {APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {SCHEMA}")
            for table in _TABLES:
                self._db.execute(table)
            self._db.execute("COMMIT")
        _require_known_schema(self._db, self.path)
        # A killed process loses nothing that was written; a power cut at most the last rows.
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")

    def begin(self, points: Points) -> set[str]:
        """Make these the folder's points; return the keys of those that are finished."""
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
            finished = self._db.execute(
                "SELECT key FROM points JOIN results USING (key) WHERE results.final"
            )
            return {key for (key,) in finished}

    def add(
        self, key: str, program: str, cells: Cells, plan: bytes | None, final: bool = True
    ) -> None:
        """Store a result; one that is not final is planned again by the next run."""
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        row = (key, finished, program, cells["status"], final, json.dumps(cells), plan)
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Leave one file that can be read where nothing can be written."""
        # if somebody reads it at this moment, the write-ahead log stays
        with suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()

    def write_view(self) -> None:
        """Make a view `sweep` with a column for each of the rows' columns."""
        (text,) = self._db.execute("SELECT value FROM about WHERE name = 'axes'").fetchone()
        cells = self._db.execute("SELECT cells FROM points JOIN results USING (key)")
        names = columns_of(json.loads(document) for (document,) in cells)
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
    # names come from files: quotes in them must not end the expression
    quoted = '"' + name.replace('"', '""') + '"'
    return f"json_extract({column}, '{path}') AS {quoted}"


def _is_empty(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _no_sweep(folder: Path) -> InputError:
    return InputError(
        "no sweep is here", path=str(folder), allowed="a folder that `planner sweep --out` wrote"
    )


def _require_known_schema(db: sqlite3.Connection, path: Path) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (schema,) = db.execute("PRAGMA user_version").fetchone()
    if (application, schema) != (APPLICATION, SCHEMA):
        raise InputError(
            "not a sweep's results, or those of another version",
            path=str(path),
            allowed="the folder of a sweep of this version, or a new one",
        )


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class Contents:
    """What a folder holds at one moment, even while a sweep writes into it.

    about: name, axes, settings. rows: point, key, axes and cells of each finished point, in the
    order of the points. num_points: how many points the sweep has, finished or not.
    """

    about: dict[str, str]
    rows: list[Cells]
    num_points: int


def read(folder: Path) -> Contents:
    """The sweep that was last run into a folder.

    Raises:
        InputError: there is no sweep, or its file is of another program or version.
    """
    return _ask(folder, _contents)


def _contents(db: sqlite3.Connection) -> Contents:
    rows = db.execute(
        "SELECT point, key, axis_values, cells FROM points JOIN results USING (key) ORDER BY point"
    )
    return Contents(
        about=dict(db.execute("SELECT name, value FROM about").fetchall()),
        rows=[
            {"point": point, "key": key, **_row(json.loads(values), json.loads(cells))}
            for point, key, values, cells in rows
        ],
        num_points=_num_points(db),
    )


def _row(axes: Cells, cells: Cells) -> Cells:
    """Axes first; a cell does not replace an axis of the same name, such as num_accelerators."""
    return axes | cells | axes


def _num_points(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM points").fetchone()[0])


def read_plan(folder: Path, point: int) -> bytes | None:
    """The compressed plan of a point; None where it failed.

    Raises:
        InputError: no such point is finished, or there is no sweep.
    """

    def plan(db: sqlite3.Connection) -> bytes | None:
        query = "SELECT plan FROM points JOIN results USING (key) WHERE point = ?"
        row = db.execute(query, (point,)).fetchone()
        if row is None:
            raise InputError(
                f"no finished point {point}", path=str(folder / FILE), value=point,
                allowed=f"a finished point from 0 to {_num_points(db) - 1}",
            )  # fmt: skip
        data: bytes | None = row[0]
        return data

    return _ask(folder, plan)


def _ask(folder: Path, answer: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
    """Read a folder's file in one transaction."""
    path = folder / FILE
    if not path.is_file():
        raise _no_sweep(folder)
    place = path.resolve().as_uri()
    try:
        # the second mode is for folders in which the write-ahead log cannot be opened
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            try:
                with closing(sqlite3.connect(f"{place}?{mode}", uri=True)) as db:
                    db.execute("BEGIN")
                    if _is_empty(db):
                        raise _no_sweep(folder)
                    _require_known_schema(db, path)
                    if not db.execute("SELECT count(*) FROM about").fetchone()[0]:
                        raise _no_sweep(folder)  # one is just starting
                    return answer(db)
            except sqlite3.OperationalError as error:
                failure = error
        raise failure
    except sqlite3.Error as error:
        raise InputError(
            f"cannot be read: {error}", path=str(path), allowed="a sweep's results"
        ) from None
