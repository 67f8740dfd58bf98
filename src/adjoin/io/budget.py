"""Loading in a process of its own, with bounds on time and memory, for robot files that are not trusted.

The reader checks what it can before MuJoCo's compiler runs, but a compiler that hangs or takes all memory cannot be
stopped from within its process. The worker answers with data only: a saved model, or the parts of an error.
"""

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from adjoin.errors import Finding, InputError, Location, ModelError, ModelWarning, Option, Subject
from adjoin.io import store
from adjoin.model.model import Model

_START_SECONDS = 300.0
"""How long the worker may take beyond its budget: it has to start and to import this library."""
_WORKER = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from adjoin.io.budget import serve
serve()
"""


class Budget(NamedTuple):
    """What loading a robot may cost.

    Attributes:
        seconds: of wall-clock time, from when the worker process has started.
        memory: bytes beyond those of the worker before it loads.
    """

    seconds: float = 60.0
    memory: int = 2 * 2**30


def load_within(budget: Budget, source: Any, name: str, options: dict[str, Any]) -> tuple[Model, list[Finding]]:
    """Load a robot in a worker process.

    Args:
        budget: what it may cost.
        source: as of `load`.
        name: what messages call it.
        options: of `load`.

    Returns:
        The model, and the flaws of the file that were no reason to refuse it.

    Raises:
        ModelError: as of `load`; or the file took more than the budget, or it ended the worker.
    """
    if not isinstance(budget, Budget) or not budget.seconds > 0 or not budget.memory > 0:
        raise InputError(f"budget must be an adjoin.Budget with positive numbers, got {budget!r}")
    where = Location(name)
    command = [sys.executable, "-I", "-c", _WORKER, json.dumps(sys.path)]
    request = pickle.dumps((budget, source, options))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        try:
            reply, _ = worker.communicate(request, timeout=_START_SECONDS + budget.seconds)
        except subprocess.TimeoutExpired:
            worker.kill()
            reply = b""
        except BaseException:
            worker.kill()
            raise
    if worker.returncode != 0:
        raise _ended(worker.returncode, budget, where)
    return read_answer(reply, name)


def read_answer(data: bytes, name: str) -> tuple[Model, list[Finding]]:
    """Return the model and the flaws of an answer, or raise its error."""
    head, _, saved = data.partition(b"\n")
    reply = json.loads(head)
    if "error" in reply:
        raise _error(reply["error"])
    return store.from_bytes(saved, name), [Finding(_error(parts), done) for parts, done in reply["findings"]]


def serve() -> None:
    """Answer one request: the body of the worker process."""
    budget, source, options = pickle.load(sys.stdin.buffer)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get into the answer
    _limit(budget)
    try:
        out.write(answer(source, options))
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)
    out.close()


def answer(source: Any, options: dict[str, Any]) -> bytes:
    """Load a robot, and return the model with the flaws of the file, or the error, as data."""
    from adjoin.io.load import load

    saved = b""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            saved = store.to_bytes(load(source, **options))
        findings = [f for w in caught if isinstance(w.message, ModelWarning) for f in w.message.findings]
        reply = {"findings": [[_parts(finding.error), finding.done] for finding in findings]}
    except ModelError as error:
        reply = {"error": _parts(error)}
    return json.dumps(reply).encode() + b"\n" + saved


def _limit(budget: Budget) -> None:
    """End this process when its time is over, even inside of a compiler, and refuse memory beyond the budget."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, budget.seconds)
    with contextlib.suppress(ImportError, OSError, ValueError):  # systems without such limits have the time alone
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + budget.memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _ended(code: int, budget: Budget, where: Location) -> ModelError:
    if code == -signal.SIGALRM:
        problem = f"loading it takes more than {budget.seconds:g} s"
    else:
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        problem = f"loading it takes more than {budget.memory / 2**20:g} MiB, or ends the process ({name})"
    return ModelError(problem, where=where, remedy="if you trust the file, give it a larger budget")


def _parts(error: ModelError) -> dict[str, Any]:
    """Return an error as JSON."""
    subject = error.subject
    return {
        "problem": error.problem,
        "where": [error.file, error.line],
        "element": error.element,
        "subject": None if subject is None else [type(subject).__name__, *map(_plain, subject)],
        "field": error.field,
        "remedy": error.remedy,
        "options": [[_plain(part) for part in option] for option in error.options],
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)


def _error(parts: dict[str, Any]) -> ModelError:
    subject = parts["subject"]
    kinds = {"Subject": Subject, "Option": Option}
    return ModelError(
        parts["problem"],
        where=Location(*parts["where"]),
        element=parts["element"],
        subject=None if subject is None else kinds[subject[0]](*subject[1:]),
        field=parts["field"],
        remedy=parts["remedy"],
        options=[Option(*option) for option in parts["options"]],
    )
