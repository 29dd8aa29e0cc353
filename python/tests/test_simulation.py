"""`fl.simulate` with programs that only say what they were asked."""

import io
import json
import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import fl
from fl import simulation

# The program is this file with its name; it writes its arguments to a log beside itself.
PROGRAM = f"""#!{sys.executable}
import json, os, sys, time
from pathlib import Path

here, name, (verb, *rest) = Path(__file__).parent, Path(__file__).name, sys.argv[1:]
with open(here / "log", "a") as log:
    print(json.dumps([name, verb, *rest]), file=log)
if verb == "init" and name == "fl-server":
    Path(rest[0]).mkdir()
elif verb == "issue":
    for i in range(int(rest[rest.index("--count") + 1])):
        folder = Path(rest[rest.index("--out") + 1]) / f"client-0{{i}}"
        folder.mkdir()
        (folder / "client.toml").write_text('server = "unused:1"\\n')
elif verb == "init":
    Path(rest[rest.index("-o") + 1]).touch()
elif verb == "serve":
    print("serving `r` on 127.0.0.1:4321; look at http://x", flush=True)
    print("round 1", flush=True)
    if (here / "server-fails").exists():
        sys.exit("no space left")
    if (here / "client-fails").exists() or (here / "clients-leave").exists():
        time.sleep(600)
elif verb == "run":
    if (here / "clients-leave").exists():
        print("2026-11-22T14:49:17Z  WARN a trainer cannot attach", file=sys.stderr)
        print('2026-11-22T14:49:17Z  WARN leaving this round round=1 why="bad data"', file=sys.stderr, flush=True)
        time.sleep(600)
    if (here / "client-fails").exists():
        sys.exit("there is no data")
elif verb == "report":
    print(json.dumps({{"rounds": {{"round": [1], "accuracy": [0.5]}}}}))
"""


class Simulate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("fl-server", "fl-client"):
            program = self.folder / name
            program.write_text(PROGRAM)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        patch = mock.patch.object(simulation, "_program", lambda name: str(self.folder / name))
        patch.start()
        self.addCleanup(patch.stop)
        (self.folder / "run.toml").write_text(
            'name = "r"\n# task = "no"\ntask = "digits"\n[model]\n  weights = "first.safetensors"\n'
        )

    def simulate(self, **options):
        with mock.patch("sys.stdout"):
            return fl.simulate(self.folder / "run.toml", clients=2, script="train.py", **options)

    def log(self):
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def test_the_rounds_are_a_dict_of_lists(self):
        kept = self.folder / "kept"
        kept.mkdir()
        self.assertEqual(self.simulate(folder=kept), {"round": [1], "accuracy": [0.5]})
        verbs = [(name, verb) for name, verb, *_ in self.log()]
        self.assertEqual(
            verbs[:4], [("fl-server", "init"), ("fl-server", "issue"), ("fl-client", "init"), ("fl-server", "serve")]
        )
        self.assertEqual(sorted(verbs[4:]), [("fl-client", "run")] * 2 + [("fl-server", "report")])
        self.assertTrue(
            all(
                line[3:] == ["--exit-when-done", "--server", "127.0.0.1:4321"]
                for line in self.log()
                if line[1] == "run"
            )
        )
        command = json.dumps([sys.executable, os.path.abspath("train.py"), "1", "2"])
        expected = f"[tasks.digits]\nlearner = {{ command = {command} }}"
        self.assertIn(expected, (kept / "client-01" / "client.toml").read_text())

    def test_weights_that_exist_are_not_made_again(self):
        (self.folder / "first.safetensors").touch()
        self.simulate(arguments=["--part", "{i}/{n}"])
        self.assertNotIn(("fl-client", "init"), [(name, verb) for name, verb, *_ in self.log()])

    def test_a_client_or_a_server_that_fails_ends_it_with_the_end_of_its_log(self):
        for fault, why in (("client-fails", "there is no data"), ("server-fails", "no space left")):
            (self.folder / fault).touch()
            with self.subTest(fault=fault), self.assertRaisesRegex(RuntimeError, f"exit status 1\n{why}"):
                self.simulate()
            (self.folder / fault).unlink()

    def test_clients_that_all_leave_a_round_end_it_and_their_warnings_are_shown(self):
        (self.folder / "clients-leave").touch()
        with mock.patch("sys.stderr", io.StringIO()) as shown:
            with self.assertRaisesRegex(RuntimeError, '(?s)all clients left round 1; .*why="bad data"'):
                self.simulate()
        warnings = ["client-00: a trainer cannot attach", "client-01: a trainer cannot attach"]
        self.assertEqual(sorted(shown.getvalue().splitlines()), warnings)

    def test_a_run_without_a_task_is_refused_by_name(self):
        (self.folder / "run.toml").write_text('name = "r"\n')
        with self.assertRaisesRegex(RuntimeError, "run.toml has no `task`"):
            self.simulate()

    def test_a_missing_program_is_named(self):
        mock.patch.stopall()
        with (
            mock.patch("shutil.which", return_value=None),
            self.assertRaisesRegex(RuntimeError, "no program `fl-server`"),
        ):
            simulation._program("fl-server")


if __name__ == "__main__":
    unittest.main()
