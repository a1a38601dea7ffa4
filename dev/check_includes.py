"""Checks who includes whom: references <- kernels, references <- baselines, all three <- harness <- tests.

kernels never includes torch or the harness, baselines never includes kernels, torch headers stay in baselines'
.cpp files, which never include fmt (torch ships its own), and includes of the project are written from the
root. Inside the harness each room names the rooms and top-level folders that it may include, and files of
references/base include nothing but that folder. A source file has the name of its header. Prints one line a violation;
exit 1 if there is any.
"""

import pathlib
import re
import sys

import scripts_path  # noqa: F401
from tracked_files import ROOT, check_files, show, tracked_files

# Folder -> the folders whose headers it may include.
MAY_INCLUDE = {
    "references": {"references"},
    "kernels": {"kernels", "references"},
    "baselines": {"baselines", "references"},
    "harness": {"harness", "references", "kernels", "baselines"},
    "tests": {"tests", "harness", "references", "kernels", "baselines"},
}
# Room of the harness -> what it may include besides itself, settings and references: rooms, and kernels or baselines.
# measure, report <- judge <- flow <- hosts, archive <- cli; wire <- host, hosts, archive, cli. A host includes neither
# the command line nor code that judges or schedules; the flow of a case includes engines, not processes; finished
# reports need no process; the command line includes neither kernels nor baselines.
# main.cpp, and all_main.cpp, which joins parent and hosts, are outside the rooms.
ROOMS = {
    "settings": set(),
    "engines": set(),
    "measure": set(),
    "report": {"measure"},
    "judge": {"measure", "report"},
    "flow": {"engines", "judge", "measure", "report"},
    "wire": {"device", "measure", "report"},
    "device": {"kernels", "measure", "report"},
    "plugin": {"engines", "kernels"},
    "selftest": {"judge", "measure", "report"},
    "host": {"baselines", "device", "engines", "kernels", "wire"},
    "hosts": {"device", "engines", "flow", "judge", "measure", "report", "wire"},
    "archive": {"engines", "flow", "judge", "measure", "report", "wire"},
    "cli": {"archive", "device", "engines", "flow", "hosts", "judge", "measure", "report", "selftest", "wire"},
    "micro": {"device", "kernels"},
}
# Headers that CMake writes into the build folder.
GENERATED = {"cuda_lanes.inc", "known_errors.inc", "mkbench_git.h"}
SOURCE_SUFFIXES = {".c", ".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.MULTILINE)
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
FMT = re.compile(r"^fmt/")
# Examples for users, which no target of ours compiles.
TORCH_EXAMPLES = "tests/engines/"
# Sources of `mkbench new-engine`: they are compiled in a user's folder, beside copies of these headers and no others, of
# which the one includes the other as it lies there.
TEMPLATES, TEMPLATE_HEADERS = "scripts/templates/", {"engine_abi.h", "step_engine.h"}
# Folders in which a unit bears the name of its header. HEADERLESS units have none: programs, commands (declared in
# commands.h), makers of engines (engine_maker.h), benchmarks, rows of shapes, families (family.h), libraries that others
# load.
NAMED_BY_HEADER = {"references", "kernels", "baselines", "harness"}
HEADERLESS = re.compile(r"(^|[/_])main\.cpp$|/(engine|library|python_recorder)\.cpp$|/(commands|families|micro|rows)/")


def check_room(path: str, target: str) -> str:
    """Why a file must not include `target` by the rules of rooms and of references/base; empty where it may."""
    if path.startswith("references/base/") and not target.startswith("references/base/"):
        return "references/base must not include the rest"
    parts = path.split("/")
    if parts[0] != "harness" or len(parts) < 3:
        return ""
    room = parts[1]
    if room not in ROOMS:
        return f"harness/{room} is not a room; the rooms are {', '.join(ROOMS)}"
    folders = target.split("/")
    wanted = folders[1] if folders[0] == "harness" and len(folders) > 2 else folders[0]
    if wanted in {room, "references", "settings"} | ROOMS[room]:
        return ""
    return f"harness/{room} must not include {wanted}"


def check_file(path: str, text: str) -> list[str]:
    """Violations of one file, each as a line; path is relative to the root."""
    if path.startswith(TEMPLATES):
        targets = [target for quote, target in INCLUDE.findall(text) if quote == '"']
        return [f"{path}: {target}: a template has {' and '.join(sorted(TEMPLATE_HEADERS))} alone" for target in targets
                if target not in TEMPLATE_HEADERS]
    folder = path.split("/", 1)[0]
    if folder not in MAY_INCLUDE:
        return [f"{path}: source file outside {', '.join(MAY_INCLUDE)}"]
    found = []
    includes_torch = False
    includes_fmt = False
    for match in INCLUDE.finditer(text):
        quote, target = match.groups()
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        top = target.split("/", 1)[0]
        if TORCH.match(target):
            includes_torch = True
            if not path.startswith(TORCH_EXAMPLES) and (folder != "baselines" or not path.endswith(".cpp")):
                found.append(f"{where}: {target}: torch headers only in baselines/*.cpp")
        elif FMT.match(target):
            includes_fmt = True
        elif top in MAY_INCLUDE:
            if quote == "<":
                found.append(f"{where}: {target}: headers of the project are included with quotes")
            if top not in MAY_INCLUDE[folder]:
                found.append(f"{where}: {target}: {folder} must not include {top}")
            elif reason := check_room(path, target):
                found.append(f"{where}: {target}: {reason}")
        elif quote == '"' and target not in GENERATED and (path, target) != ("references/step_engine.h", "engine_abi.h"):
            found.append(f"{where}: {target}: written from the root, as in \"references/model/weights.h\"")
    if includes_torch and includes_fmt:
        found.append(f"{path}: fmt beside torch, whose include folder shadows it with another fmt")
    return found


def check_names(paths: list[str]) -> list[str]:
    """Units whose name does not begin with the name of a header in the same folder, each as a line."""
    headers = {path.rsplit(".", 1)[0] for path in paths if path.endswith((".h", ".cuh"))}
    units = [path for path in paths if path.endswith((".cpp", ".cu")) and path.split("/")[0] in NAMED_BY_HEADER]
    return [f"{path}: no header beside it has its name, or the beginning of it up to a _" for path in units
            if not HEADERLESS.search(path)
            and not any(f"{path.rsplit('.', 1)[0]}_".startswith(f"{header}_") for header in headers)]


def check_tree(root: pathlib.Path = ROOT) -> tuple[list[str], int]:
    """All violations under root, and the number of source files read."""
    findings, count = check_files(check_file, root, SOURCE_SUFFIXES)
    return findings + check_names(tracked_files(root)), count


def main() -> int:
    return show(*check_tree(), "{count} source files, {findings} violations of the include rules")


if __name__ == "__main__":
    sys.exit(main())
