"""The package of ./dev deb, unpacked as dpkg would: lintian finds no error, it is whole, trains, and users build against it."""

import os
import re
import unittest
from pathlib import Path

from packages import PROGRAMS, ROOT, Package, outside_test, output_of, sources_of, sources_of_headers, the_only


class DebRoundTrip(Package):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.deb = the_only("lockstep_*.deb")
        cls.root = cls.folder / "root"
        output_of("dpkg-deb", "--raw-extract", cls.deb, cls.root)
        cls.programs = [cls.root / "usr/bin" / name for name in PROGRAMS]
        cls.depends = {name.split()[0] for name in output_of("dpkg-deb", "--field", cls.deb, "Depends").strip().split(", ")}

    def test_lintian_finds_no_error(self):
        output_of("lintian", "--fail-on", "error", self.deb)

    def test_every_file_has_its_sum(self):
        files = {str(path.relative_to(self.root)) for path in (self.root / "usr").rglob("*") if path.is_file()}
        sums = dict(line.split("  ", 1)[::-1] for line in (self.root / "DEBIAN/md5sums").read_text().splitlines())
        self.assertEqual(set(sums), files)
        output_of("sh", "-c", 'cd "$0" && md5sum --check --quiet DEBIAN/md5sums', self.root)

    def test_libraries_are_inside_or_of_packages_that_it_depends_on(self):
        loaded = {os.path.normpath(path) for path in re.findall(r"=> (/\S+)", output_of("ldd", *self.programs))}
        inside = {path for path in loaded if path.startswith(f"{self.root}/usr/lib/lockstep/")}
        self.assertIn("libtorch_cpu.so", {Path(path).name for path in inside})
        direct = set(re.findall(r"NEEDED.*\[(.+)\]", output_of("readelf", "-d", *self.programs)))
        for path in loaded - inside:
            if (name := Path(path).name) in direct:
                found = output_of("dpkg-query", "--search", f"*/{name}")
                self.assertTrue({line.split(":")[0] for line in found.splitlines()} & self.depends, f"{name}: {found}")

    def test_nothing_names_the_folder_it_was_built_in(self):
        for path in (self.root / "usr").rglob("*.cmake"):
            self.assertNotIn(f"{ROOT}/", path.read_text(), path)
        paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", output_of("readelf", "-d", *self.programs))
        self.assertEqual(paths, ["$ORIGIN/../lib/lockstep/torch/lib"] * 4)

    def test_licences_of_what_is_inside_are_inside(self):
        doc = self.root / "usr/share/doc/lockstep"
        self.expect_licenses(doc / "licenses", sources_of_headers() - sources_of(self.depends))
        for library in (self.root / "usr/lib/lockstep/nvidia").rglob("*.so*"):
            [license_] = doc.glob(f"licenses/nvidia_cuda_{'cupti' if 'cupti' in library.name else 'runtime'}/License.txt")
            self.assertIn("NVIDIA", license_.read_text(errors="replace"))

    def test_the_command_trains(self):
        self.expect_command_trains(self.root / "usr/bin/lockstep")

    def test_users_build_against_it(self):
        package = f"-DCMAKE_PREFIX_PATH={self.root}/usr"
        self.expect_plugin_trains(self.root / "usr/bin/lockstep", package)
        build = outside_test.configure("by-deb", package)
        self.assertIn(f"LibTorch_CPU_LIBRARY:FILEPATH={self.root}/usr/lib/lockstep/torch/lib/", (build / "CMakeCache.txt").read_text())
        self.expect_trains(self.root / "usr/bin/lockstep", build, outside_test.unpacked_clothes("clothes"))


if __name__ == "__main__":
    unittest.main()
