"""`fl.simulate` with programs that only say what they were asked."""

import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import fl
from fake_client import PACKAGE, TIMEOUT_S
from fl import simulation

# The program is this file with its name; it writes its arguments to a log beside itself.
PROGRAM = f"""#!{sys.executable}
import json, os, sys, time
from pathlib import Path

here, name, (verb, *rest) = Path(__file__).parent, Path(__file__).name, sys.argv[1:]
with open(here / "log", "a") as log:
    print(json.dumps([name, verb, *rest]), file=log)
if verb == "check":
    if (here / "plan").exists():
        print((here / "plan").read_text())
    else:
        sys.exit("run.toml: missing field `task`")
elif verb == "init" and name == "fl-server":
    Path(rest[0]).mkdir(exist_ok=True)
    if (here / "init-fails").exists():
        sys.exit("no space left")
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
    if (here / "client-fails").exists() or ((here / "status").exists() and not (here / "ends").exists()):
        time.sleep(600)
elif verb == "status":
    print((here / "status").read_text())
elif verb == "run":
    if (here / "status").exists() and not (here / "ends").exists():
        print("2026-11-22T14:49:17Z  WARN a trainer cannot attach", file=sys.stderr)
        for _ in range(2):
            print("2026-11-22T14:49:17Z  INFO fl: `accuracy` is 97.0; it is left out", file=sys.stderr)
        print("client-00 2026-11-22T14:49:17Z  WARN left round 1: bad data", file=sys.stderr, flush=True)
        (here / f"{{os.getpid()}}.pid").touch()
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
        for name in ("run.toml", "train.py"):
            (self.folder / name).touch()  # the programs read them
        self.plan = {"task": "digits", "min": 1, "weights": str(self.folder / "first.safetensors")}
        (self.folder / "plan").write_text(json.dumps(self.plan))

    def simulate(self, **options):
        options = {"clients": 2, "script": self.folder / "train.py", **options}
        with mock.patch("sys.stdout"):
            return fl.simulate(self.folder / "run.toml", **options)

    def log(self):
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]

    def test_the_rounds_are_a_dict_of_lists(self):
        kept = self.folder / "kept"
        kept.mkdir()
        self.assertEqual(self.simulate(folder=kept), {"round": [1], "accuracy": [0.5]})
        verbs = [(name, verb) for name, verb, *_ in self.log()]
        self.assertEqual(
            verbs[:5],
            [
                ("fl-server", "check"),
                ("fl-server", "init"),
                ("fl-server", "issue"),
                ("fl-client", "init"),
                ("fl-server", "serve"),
            ],
        )
        check = ["fl-server", "check", str(self.folder / "run.toml"), "--without-weights", "--format", "json"]
        self.assertEqual(self.log()[0], check)
        self.assertEqual(sorted(verbs[5:]), [("fl-client", "run")] * 2 + [("fl-server", "report")])
        self.assertTrue(
            all(
                line[3:] == ["--exit-when-done", "--server", "127.0.0.1:4321"]
                for line in self.log()
                if line[1] == "run"
            )
        )
        command = [
            "sh",
            "-c",
            'cd "$0" && exec "$@"',
            str(self.folder),
            sys.executable,
            str(self.folder / "train.py"),
            "1",
            "2",
        ]
        expected = f'[tasks."digits"]\nlearner = {{ command = {json.dumps(command)} }}'
        self.assertIn(expected, (kept / "client-01" / "client.toml").read_text())

    def test_names_and_arguments_of_any_characters_are_a_text_of_toml(self):
        kept = self.folder / "kept"
        kept.mkdir()
        (self.folder / "plan").write_text(json.dumps({**self.plan, "task": 'a."b'}))
        self.simulate(folder=kept, arguments=["\U0001f600", '"\\', "\x7f\n"])
        text = (kept / "client-00" / "client.toml").read_text(encoding="utf-8")
        self.assertIn('\n[tasks."a.\\"b"]\n', text)
        self.assertIn('"\U0001f600", "\\"\\\\", "\\u007f\\n"] }', text)

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

    def status(self, answered, waits_for, given_up):
        """What `fl-server status` says from now on."""
        members = [[{"client": name} for name in names] for names in (waits_for, given_up)]
        now = {
            "round": 3,
            "attempt": 1,
            "asked": 2,
            "answered": answered,
            "waits_for": members[0],
            "given_up": members[1],
        }
        (self.folder / "status").write_text(json.dumps({"serving": {"round": now}}))

    def test_a_round_that_too_few_clients_can_still_answer_ends_it_and_their_warnings_are_shown(self):
        (self.folder / "plan").write_text(json.dumps({**self.plan, "min": 2}))
        self.status(1, [], ["client-01"])
        with mock.patch("sys.stderr", io.StringIO()) as shown:
            why = "(?s)round 3 needs 2 updates, and only 1 of 2 clients can answer; the end of the log of client-01:.*bad data"
            with self.assertRaisesRegex(RuntimeError, why):
                self.simulate()
        lines = ("a trainer cannot attach", "fl: `accuracy` is 97.0; it is left out")
        warnings = [f"{name}: {line}" for name in ("client-00", "client-01") for line in lines]
        self.assertEqual(sorted(shown.getvalue().splitlines()), warnings)

    def test_a_round_that_can_still_close_is_waited_for(self):
        for status in ((1, [], ["client-01"]), (0, ["client-00"], ["client-01"]), (2, [], [])):
            self.status(*status)
            with self.subTest(status=status):
                self.assertIsNone(simulation._short_round(self.folder, 1, 2, []))
        (self.folder / "status").write_text('{"serving": null}')
        self.assertIsNone(simulation._short_round(self.folder, 1, 2, []))

    def test_too_few_clients_for_the_run_are_refused_at_once(self):
        (self.folder / "plan").write_text(json.dumps({**self.plan, "min": 3}))
        with self.assertRaisesRegex(ValueError, "2 clients are fewer than `cohort.min` of .*run.toml, which is 3"):
            self.simulate()

    def test_a_run_without_an_open_round_ends_once_too_few_clients_are_left(self):
        for waiting, gone, is_short in (
            ("more clients", ["client-01"], True),
            ("more clients", [], False),
            (None, ["client-01"], False),
        ):
            status = {"serving": {"round": None, "waiting": waiting}, "runs": [{"closed": 4}]}
            (self.folder / "status").write_text(json.dumps(status))
            with self.subTest(waiting=waiting, gone=gone):
                short = simulation._short_round(self.folder, 2, 2, gone)
                self.assertEqual(short, simulation._ShortRound(5, 0, 2, 1, gone) if is_short else None)

    def test_a_missing_file_and_arguments_that_are_one_text_are_refused_before_anything_starts(self):
        with self.assertRaisesRegex(FileNotFoundError, "`script`: there is no file .*/nothing.py"):
            self.simulate(script=self.folder / "nothing.py")
        with self.assertRaisesRegex(FileNotFoundError, "`script`: there is no file"):
            self.simulate(script=self.folder)
        with self.assertRaisesRegex(TypeError, "`arguments` is a list of texts"):
            self.simulate(arguments="--part {i}")
        (self.folder / "run.toml").unlink()
        with self.assertRaisesRegex(FileNotFoundError, "`run`: there is no file .*/run.toml"):
            self.simulate()
        self.assertFalse((self.folder / "log").exists())

    def test_the_folder_is_that_of_the_federation(self):
        kept = self.folder / "kept"
        self.simulate(folder=kept)
        federations = [line[2] if line[1] != "issue" else line[line.index("--fed") + 1] for line in self.log()]
        verbs = ("init", "issue", "serve", "report")
        of_verbs = {line[1]: place for line, place in zip(self.log(), federations) if line[0] == "fl-server"}
        self.assertEqual({of_verbs[verb] for verb in verbs}, {str(kept)})
        self.assertTrue((kept / "server.log").is_file() and (kept / "client-01" / "client.log").is_file())

    def test_the_same_call_resumes_what_was_interrupted(self):
        kept = self.folder / "kept"
        (self.folder / "server-fails").touch()
        with self.assertRaisesRegex(RuntimeError, "no space left"):
            self.simulate(folder=kept)
        (self.folder / "server-fails").unlink()
        (self.folder / "log").unlink()
        (self.folder / "status").write_text(json.dumps({"serving": None, "runs": [{"state": "round 2"}]}))
        (self.folder / "ends").touch()  # in spite of `status`
        self.assertEqual(self.simulate(folder=kept), {"round": [1], "accuracy": [0.5]})
        verbs = [verb for _, verb, *_ in self.log()]
        self.assertEqual(verbs[:3], ["check", "status", "serve"])
        self.assertEqual(verbs.count("run"), 2)

    def test_a_folder_that_holds_something_else_is_refused_and_stays_as_it_is(self):
        kept = self.folder / "kept"
        self.simulate(folder=kept)

        def refused(why, **options):
            before = sorted(kept.rglob("*"))
            with self.assertRaisesRegex(FileExistsError, f"{kept} {why}"):
                self.simulate(folder=kept, **options)
            self.assertEqual(sorted(kept.rglob("*")), before)

        runs = [{"state": "done"}]
        (self.folder / "status").write_text(json.dumps({"serving": None, "runs": runs}))
        refused(f"holds this run, and it is finished: `fl-server report {kept}` shows it; .*delete it")
        (self.folder / "status").write_text(json.dumps({"serving": {"round": None}, "runs": []}))
        refused("holds a simulation that is running")
        refused(r"holds another simulation \(clients, arguments changed\): delete it", clients=3, arguments=["{i}"])
        (self.folder / "run.toml").write_text("rounds = 6")
        refused(r"holds another simulation \(run.toml changed\): delete it")
        (kept / "simulation.json").unlink()
        refused("is not an empty folder, and holds no simulation: delete it")

    def test_a_federation_that_could_not_be_made_leaves_no_folder(self):
        (self.folder / "init-fails").touch()
        with self.assertRaisesRegex(RuntimeError, "no space left"):
            self.simulate(folder=self.folder / "kept")
        self.assertFalse((self.folder / "kept").exists())

    def test_the_programs_and_the_temporary_folder_do_not_outlive_the_process(self):
        self.status(0, ["client-00", "client-01"], [])
        call = (
            f"""fl.simulate({str(self.folder / "run.toml")!r}, clients=2, script={str(self.folder / "train.py")!r})"""
        )
        in_thread = f"import threading; threading.Thread(target=lambda: {call}).start()"
        for how, number in ((call, signal.SIGTERM), (in_thread, signal.SIGTERM), (call, signal.SIGKILL)):
            script = f"""
import fl
from fl import simulation
simulation._program = lambda name: {str(self.folder)!r} + "/" + name
{how}
"""
            with self.subTest(number=number, how=how):
                self.check_end(script, number)

    def check_end(self, script, number):
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "TMPDIR": str(temporary)}
        process = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE)
        with process.stdout:
            self.assertEqual(process.stdout.readline(), b"round 1\n")
            while len(pids := list(self.folder.glob("*.pid"))) < 2:
                self.assertIsNone(process.poll())
            process.send_signal(number)
            self.assertEqual(process.wait(TIMEOUT_S), -number)
        until = time.monotonic() + TIMEOUT_S
        for pid in pids:
            while Path(f"/proc/{pid.stem}").exists():
                self.assertLess(time.monotonic(), until, "a client was left behind")
                time.sleep(0.05)
            pid.unlink()
        while list(temporary.iterdir()):
            self.assertLess(time.monotonic(), until, "the temporary folder was left behind")
            time.sleep(0.05)

    def test_an_error_deletes_the_temporary_folder(self):
        (self.folder / "client-fails").touch()
        temporary = self.folder / "temporary"
        temporary.mkdir()
        with mock.patch("tempfile.tempdir", str(temporary)), self.assertRaises(RuntimeError):
            self.simulate()
        self.assertEqual(list(temporary.iterdir()), [])

    def test_a_second_interrupt_kills_the_programs(self):
        waits = [KeyboardInterrupt, 0]
        process = mock.Mock(**{"wait.side_effect": waits})
        with self.assertRaises(KeyboardInterrupt):
            simulation._end([process], 0)
        process.kill.assert_called_once()

    def test_it_works_in_a_thread_which_has_no_signals(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(self.simulate()))
        thread.start()
        thread.join(TIMEOUT_S)
        self.assertEqual(found, [{"round": [1], "accuracy": [0.5]}])
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_a_run_without_a_task_is_refused_by_name(self):
        (self.folder / "plan").unlink()
        with self.assertRaisesRegex(RuntimeError, "missing field `task`"):
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
