"""Completions and the manual page, as the shells and man read them. What is not here is skipped, and said so."""

import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

from cli_support import BINARY, CliTest, environment

# Bash's own splitting of a line into COMP_WORDS, then the function, then what it offers.
DRIVER = r"""
. "$1"
line="$2"
spaced="$(sed 's/[=:]/ & /g' <<< "$line")"
read -ra COMP_WORDS <<< "$spaced"
case "$line" in *[[:space:]]) COMP_WORDS+=("") ;; esac
COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE="$line" COMP_POINT=${#line}
_mkbench mkbench "${COMP_WORDS[COMP_CWORD]}" ""
printf '%s\n' "${COMPREPLY[@]}"
"""
COMMON = {"--help", "-h", "--version"}


def commands():
    """Each command of --help with the flags that its own --help shows."""
    def told(*args):
        return subprocess.run([BINARY, *args, "--help"], env=environment(), check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    names = re.findall(r"^  ([a-z-]+) ", told().split("Commands:")[1].split("Usage:")[0], re.MULTILINE)
    flags = {}
    for name in names:
        shown = re.findall(r"^  (-[^ ]+)", told(name).split("Options:")[1], re.MULTILINE)
        # "-p,--n-prompt", "--plot,--no-plot{false}"
        flags[name] = {re.sub(r"\{.*", "", one) for part in shown for one in part.split(",")} | COMMON
    return flags


def missing(text, flags):
    """The flags that do not stand as words of the text."""
    words = set(re.findall(r"(?<![\w-])--?[\w-]+", text))
    return sorted(set(flags) - words)


class Completions(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.commands = commands()
        cls.all_flags = set().union(*cls.commands.values())

    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"there is no {program} (apt-get install {program})")

    def printed(self, *args):
        result = self.mkbench(*args)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def bash(self, file, line):
        return subprocess.run(["bash", "--norc", "-c", DRIVER, "bash", file, line], text=True, check=True,
                              cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout.split()

    def typed(self, shell, setup, keys, wanted):
        """What an interactive shell has on its screen, once it shows `wanted` or four seconds after the keys."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe(shell[0], shell, {**environment(), "TERM": "xterm", "PS1": "$ ", "HOME": str(self.folder)})
        screen = ""

        def look(until, seconds):
            nonlocal screen
            deadline = time.monotonic() + seconds
            while until not in screen and time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.1)[0]:
                    try:
                        part = os.read(terminal, 65536).decode(errors="replace")
                    except OSError:
                        return
                    screen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|.\x08|[\x07\r]", "", screen + part)

        try:
            os.write(terminal, f"{setup}; echo re''ady\n".encode())
            look("ready\n", 10)
            screen = ""
            os.write(terminal, keys.encode())
            look(wanted, 4)
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(terminal)
        return screen

    def test_other_words_are_refused(self):
        for words in ([], ["tcsh"], ["bash", "zsh"]):
            result = self.mkbench("completions", *words)
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stderr.count("\n"), 1)
            self.assertIn("wanted one of bash, zsh, fish", result.stderr)

    def test_bash_has_every_flag_of_every_command(self):
        text = self.printed("completions", "bash")
        file = self.file("mkbench", text)
        self.assertEqual({name: sorted(self.bash(file, f"mkbench {name} -")) for name in self.commands},
                         {name: sorted(flags) for name, flags in self.commands.items()})
        self.assertEqual(sorted(self.bash(file, "mkbench -")), sorted(self.commands["run"]))
        self.assertEqual(self.bash(file, "mkbench "), list(self.commands))
        # A flag that is left out is seen.
        less = self.file("less", text.replace(" --fail-on -", " -").replace(" --fail-on --", " --"))
        self.assertEqual(set(self.commands["gate"]) - set(self.bash(less, "mkbench gate -")), {"--fail-on"})

    def test_bash_values(self):
        file = self.file("mkbench", self.printed("completions", "bash"))
        (self.folder / "kernel.so").touch()
        for line, wanted in {
                "mkbench --device ": "auto cuda cpu", "mkbench --device=c": "cuda cpu", "mkbench -o j": "json jsonl",
                "mkbench gate -o ": "md json", "mkbench gate --fail-on=": "regression inconclusive",
                "mkbench ga": "gate", "mkbench list e": "engines errors", "mkbench completions ": "bash zsh fish",
                "mkbench --compare eager,g": "eager,graph", "mkbench --engine ./k": "./kernel.so",
                "mkbench --model tiny,synthetic:qwen3-4": "qwen3-4b", "mkbench plot --device ": "kernel.so mkbench",
                "mkbench --model=tiny,tiny-": "tiny,tiny-untied", "mkbench --engine plain,ker": "plain,kernel.so",
                "mkbench --gpu ": "", "mkbench doctor --strict ": ""}.items():
            self.assertEqual(sorted(self.bash(file, line)), sorted(wanted.split()), line)

    def test_bash_at_a_terminal(self):
        file = self.file("mkbench", self.printed("completions", "bash"))
        setup = f"bind 'set enable-bracketed-paste off'; . {file}"
        shell = ["bash", "--norc", "-i"]
        registered = subprocess.run(["bash", "--norc", "-c", f". {file}; complete -p mkbench"], text=True, check=True,
                                    stdout=subprocess.PIPE).stdout
        self.assertEqual(registered, "complete -F _mkbench mkbench\n")
        talker = "mkbench --model=tiny,synthetic:qwen3-tts-talker"
        for keys, wanted in {"mkbench gate --fa\t": "mkbench gate --fail-on ", f"{talker[:-9]}\t": talker}.items():
            self.assertIn(wanted, self.typed(shell, setup, keys, wanted))

    def test_zsh(self):
        text = self.printed("completions", "zsh")
        branch = re.compile(r"^    \(([a-z-]+)\)\n      flags=\(\n(.*?)^      \) ;;", re.DOTALL | re.MULTILINE)
        branches = dict(branch.findall(text))
        for name, flags in self.commands.items():
            self.assertEqual(missing(branches[name].replace("'", " ").replace("*", " "), flags), [], name)
        less = re.sub(r".*--fail-on=.*\n", "", branches["gate"])
        self.assertEqual(missing(less.replace("'", " ").replace("*", " "), self.commands["gate"]), ["--fail-on"])
        self.need("zsh")
        file = self.file("_mkbench", text)
        subprocess.run(["zsh", "-n", str(file)], check=True)
        setup = f"PS1='$ '; fpath=({self.folder} $fpath); autoload -U compinit; compinit -u -D"
        for keys, wanted in {"mkbench gate --fa\t": "mkbench gate --fail-on", "mkbench doc\t": "mkbench doctor",
                             "mkbench list mod\t": "mkbench list models"}.items():
            self.assertIn(wanted, self.typed(["zsh", "-f", "-i"], setup, keys, wanted))

    def test_fish(self):
        text = self.printed("completions", "fish")
        for name, flags in self.commands.items():
            lines = [line for line in text.splitlines()
                     if re.search(rf"'__mkbench_in [^']*\b{name}\b", line) or "-n" not in line]
            words = " ".join(f"-{short} --{long}" for line in lines
                             for short, long in [(re.findall(r" -s (\S)", line) or ["_"])[:1] +
                                                 (re.findall(r" -l (\S+)", line) or ["_"])[:1]])
            self.assertEqual(missing(words, flags), [], name)
        self.need("fish")
        file = self.file("mkbench.fish", text)
        subprocess.run(["fish", "-n", str(file)], check=True)

        def offered(line):
            return [row.split("\t")[0] for row in subprocess.run(
                ["fish", "--no-config", "-c", f"source {file}; complete -C '{line}'"], text=True, check=True,
                cwd=self.folder, stdout=subprocess.PIPE).stdout.splitlines()]

        self.assertEqual(sorted(offered("mkbench --device ")), ["auto", "cpu", "cuda"])
        self.assertEqual(offered("mkbench gate --fail-on "), ["inconclusive", "regression"])
        self.assertEqual(offered("mkbench --compare eager,gr"), ["eager,graph"])
        self.assertEqual(sorted(set(offered("mkbench ")) - {"mkbench.fish"}), sorted(self.commands))
        for name in self.commands:
            wanted = sorted(flag for flag in self.commands[name] if flag.startswith("--"))
            self.assertEqual(sorted(offered(f"mkbench {name} --")), wanted, name)

    def test_the_manual_page(self):
        text = self.printed("manpage")
        flags = {flag.replace("-", r"\-") for flag in self.all_flags}
        bold = set(re.findall(r"\\fB(.*?)\\fR", text))
        self.assertEqual(sorted(flags - bold), [])
        self.assertEqual(sorted({name.replace("-", r"\-") for name in self.commands} - bold), [])
        less = set(re.findall(r"\\fB(.*?)\\fR", text.replace(r"\fB\-\-fail\-on\fR", "")))
        self.assertEqual(flags - less, {r"\-\-fail\-on"})
        for code in ("0", "1", "2", "3", "4", "5", "6", "7", "8", "130"):
            self.assertIn(code, bold)
        file = self.file("mkbench.1", text)
        checked = 0
        for checker in (["mandoc", "-T", "lint", "-W", "warning"], ["groff", "-man", "-Tutf8", "-ww", "-z"],
                        ["man", "--warnings", "-l"]):
            if shutil.which(checker[0]) is None:
                continue
            result = subprocess.run([*checker, str(file)], text=True, env={**os.environ, "MANPAGER": "cat"},
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            said = result.stderr + (result.stdout if checker[0] == "mandoc" else "")
            self.assertEqual((checker[0], result.returncode, said), (checker[0], 0, ""))
            checked += 1
        if checked == 0:
            self.skipTest("there is neither mandoc, groff nor man")


if __name__ == "__main__":
    unittest.main()
