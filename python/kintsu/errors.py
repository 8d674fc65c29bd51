"""What can go wrong. Every message says what was expected and what came."""


class KintsuError(Exception):
    """All errors of this package."""


class InvalidError(KintsuError, ValueError):
    """A code, graph, matrix or argument that is not what it should be.

    Also a graph that proves false and a distance that does not hold. Where a code's own method raised, its
    exception is the cause (``__cause__``).
    """


class UnrecoverableError(KintsuError):
    """More losses than the code can bear."""


class ClusterError(KintsuError, RuntimeError):
    """A cluster refused or failed."""


class NotFoundError(ClusterError):
    """There is no such object, node or code."""


class ExistsError(ClusterError):
    """The name is taken already."""


class UnreachableError(ClusterError):
    """The coordinator, or a node, does not answer."""
