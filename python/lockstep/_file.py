"""Files that are there whole, or as they were."""

import os
from contextlib import contextmanager, suppress


class _File:
    """A file that torch writes. It ends the process when a write fails, so the first error is kept, and raised at the end."""

    def __init__(self, file):
        self._file, self._error = file, None

    def write(self, data):
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
        return len(data)

    def flush(self):
        pass

    def finish(self):
        if self._error is not None:
            raise self._error
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def whole_file(who, path):
    """Yields a new file, which takes the place of `path` at the end; after an error nothing has changed. A place that cannot be written
    to is an error before any work."""
    path = os.path.realpath(os.fspath(path))
    aside = f"{path}.{os.getpid()}.part"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError(f"{path} is not a file")
        with open(aside, "xb") as file:
            own = _File(file)
            yield own
            own.finish()
        os.replace(aside, path)
    except OSError as error:
        raise type(error)(*error.args[:2], path) if error.filename == aside else OSError(f"{who}: cannot write {path}: {error}") from error
    finally:
        with suppress(OSError):
            os.remove(aside)
