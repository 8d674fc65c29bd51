"""What can go wrong. Every message says what was expected and what came."""


class KintsuError(Exception):
    """All errors of this package."""


class InvalidError(KintsuError, ValueError):
    """A bad code, graph, matrix or argument.

    Also a graph whose proof fails and a distance that does not hold. If a method of the code raised an exception, that
    is the cause (``__cause__``).
    """


class UnrecoverableError(KintsuError):
    """More losses than the code tolerates."""


class ClusterError(KintsuError, RuntimeError):
    """A cluster refused or failed."""


class NotFoundError(ClusterError):
    """There is no such object, node or code."""


class ExistsError(ClusterError):
    """The name is taken already."""


class UnreachableError(ClusterError):
    """The coordinator, or a node, does not answer."""
