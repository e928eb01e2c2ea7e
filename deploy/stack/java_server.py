"""Servers that run in a Java virtual machine, from their jars and a launcher of skillbus."""

from __future__ import annotations

import logging
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from deploy.stack import packages
from deploy.stack.ports import free_port
from deploy.stack.server import Memory, Place, Server

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of servers that end with the process that starts them. Without the optimising compiler a
start takes half the processor time; the compiler only helps after minutes of work."""

_log = logging.getLogger(__name__)


class JavaServer(Server):
    """A server started from its jars by a launcher.

    Before its first start the server runs once to archive the classes that the virtual machine
    loads; with the archive, later starts take half the processor time.
    """

    package: ClassVar[str]
    """Name of its package (`packages.package`)."""
    main_class: ClassVar[str]
    flags: ClassVar[tuple[str, ...]]

    def __init__(
        self, place: Place, memory: Memory, *, tethered: bool, archive: Path | None = None
    ) -> None:
        super().__init__(place, memory, tethered=tethered)
        self._to_write = archive

    @property
    @abstractmethod
    def heap(self) -> str:
        """Maximum heap size, in the format of `-Xmx`."""

    @abstractmethod
    def configure(self) -> None:
        """Write the configuration into the data folder."""

    def prepare(self) -> None:
        """Fetch and compile the package, archive its classes, and write the configuration."""
        package = packages.package(self.package)
        if self._to_write is None:
            packages.make(package.archive.parent, self._make_archive)
        self.configure()

    def command(self) -> Sequence[str]:
        """Return the command of a Java virtual machine with the launcher."""
        package = packages.package(self.package)
        archived = []
        if self._to_write is not None:
            archived = [f"-XX:ArchiveClassesAtExit={self._to_write}"]
        elif package.archive.exists():
            archived = [f"-XX:SharedArchiveFile={package.archive}"]
        return [
            str(package.java),
            f"-Xmx{self.heap}",
            *(SHORT_LIVED if self.tethered else ()),
            *archived,
            "-Xlog:cds=off",  # it lists every class that is not in the archive
            "-XX:+ExitOnOutOfMemoryError",
            "--enable-native-access=ALL-UNNAMED",
            f"-Djava.io.tmpdir={self.place.data}",
            *self.flags,
            "-cp",
            package.class_path,
            self.main_class,
            str(self.place.data),
        ]

    def _make_archive(self, folder: Path) -> None:
        _log.info("starting %s for the first time, to make later starts faster", self.name)
        ports: dict[str, int] = {}
        for use in self.ports:
            ports[use] = free_port(set(ports.values()))
        place = Place(folder / "data", folder / f"{self.name}.log", ports)
        once = type(self)(place, self.memory, tethered=True, archive=folder / "classes.jsa")
        try:
            once.start()
            once.wait_ready()
        finally:
            once.stop()
        shutil.rmtree(place.data)
        if not (folder / "classes.jsa").exists():
            _log.warning("%s: the virtual machine archived nothing: see %s", self.name, place.log)
