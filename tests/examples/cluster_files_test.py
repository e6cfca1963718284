"""Checks examples/cluster: its scripts, the Kubernetes job and the Containerfile, as far as that goes without a cluster."""

import os
import re
import subprocess
import unittest
from fnmatch import fnmatch
from pathlib import Path

import yaml  # python3-yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "cluster"
LOCKSTEP = Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "lockstep"


class Scripts(unittest.TestCase):
    def test_are_clean(self):
        scripts = [str(path) for path in FOLDER.iterdir() if path.suffix in (".sh", ".sbatch")]
        self.assertEqual(len(scripts), 5)
        found = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stdout)

    def test_the_page_names_all(self):
        page = (FOLDER / "README.md").read_text()
        for path in FOLDER.iterdir():
            self.assertTrue(path.name == "README.md" or path.name in page, path.name)


class KubernetesJob(unittest.TestCase):
    def setUp(self):
        self.service, self.job = yaml.safe_load_all((FOLDER / "kubernetes_job.yaml").read_text())
        self.pod = self.job["spec"]["template"]["spec"]
        self.container, = self.pod["containers"]

    def variables(self):
        return {each["name"]: each.get("value") for each in self.container["env"]}

    def test_the_name_of_the_first_pod_is_where_ranks_meet(self):
        job, service = self.job["metadata"]["name"], self.service["metadata"]["name"]
        self.assertEqual(self.pod["subdomain"], service)
        self.assertEqual(self.service["spec"]["clusterIP"], "None")
        self.assertEqual(self.service["spec"]["selector"], {"job-name": job})
        self.assertEqual(self.variables()["PET_MASTER_ADDR"], f"{job}-0.{service}")

    def test_each_pod_is_a_node(self):
        spec = self.job["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(spec["completions"], spec["parallelism"])
        self.assertEqual(self.variables()["PET_NNODES"], str(spec["completions"]))
        self.assertEqual(self.pod["restartPolicy"], "Never")  # podFailurePolicy takes no other

    def test_codes_that_come_again_end_the_job(self):
        rule = self.job["spec"]["podFailurePolicy"]["rules"][0]
        self.assertEqual(rule["action"], "FailJob")
        self.assertEqual(rule["onExitCodes"]["values"], [2, 3, 6])
        self.assertEqual(rule["onExitCodes"]["containerName"], self.container["name"])

    def test_its_command_is_understood(self):
        """As a dry run of one pod."""
        command = self.container["command"]
        self.assertEqual(command[:3], ["tini", "--", "lockstep"])
        flags = command[3:]
        flags[flags.index("/runs/night")] = "/nonexistent/run"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
        run = subprocess.run([LOCKSTEP, *flags, "--dry-run", "--oversubscribe"], env=clean, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, "ranks +4|4 ranks")


class Containerfile(unittest.TestCase):
    def test_installs_the_package_that_dev_makes(self):
        installed = re.search(r"/dist/(\S+\.deb)", (FOLDER / "Containerfile").read_text()).group(1)
        made = re.search(r'"dist/(\S+\.deb)"', (ROOT / "tools/pack_deb").read_text()).group(1)
        self.assertTrue(fnmatch(made, installed), f"{made} is made, {installed} installed")


if __name__ == "__main__":
    unittest.main()
