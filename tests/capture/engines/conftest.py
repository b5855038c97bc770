"""The servers that tests start for themselves, for the tests of this folder."""

from servers import postgresql, postgresql_server, ray_cluster

__all__ = ["postgresql", "postgresql_server", "ray_cluster"]
