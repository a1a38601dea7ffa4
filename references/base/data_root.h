// Where the running program finds what it reads and starts: the one place that tells an installed
// program from one in a build folder.
#pragma once

#include <filesystem>
#include <string>

namespace mkbench {

// The folder of the running program. Its hosts and mkbench-all lie beside it.
std::filesystem::path program_folder();

// An installed program has the data beside it (cmake/MkbenchInstall.cmake).
bool is_installed();

// The folder of everything that is read at run time: scripts/, references/, reports/ and the examples
// of tests/, each by its path in the source tree. It is program_folder() of an installed program, else
// the source tree of the build.
std::filesystem::path data_root();

// The Python that mkbench was set up with: of an installed program the one that MKBENCH_OWN_PYTHON
// names, as the wheel's console script does; else the build's.
std::string own_python();

// The Python that runs programs of scripts/: MKBENCH_PYTHON of the environment, else own_python().
std::string python_of_scripts();

// Advice as it is shown here: where it names a program of scripts/ an installation adds that it is one
// of a clone.
std::string advice_here(const std::string& advice);

}  // namespace mkbench
