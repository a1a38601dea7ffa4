// Paths of what the running program reads and starts. Only this file tells an installed program
// from one in a build folder.
#pragma once

#include <filesystem>
#include <string>

namespace mkbench {

// The folder of the running program. Its hosts and mkbench-all lie beside it.
std::filesystem::path program_folder();

// An installed program has the data beside it (cmake/MkbenchInstall.cmake).
bool is_installed();

// The folder of everything that is read at run time: scripts/, references/, reports/ and examples
// of tests/, each by its path in the source tree. An installed program has all of it in
// program_folder(), any other program in the source tree that it was built from.
std::filesystem::path data_root();

// The Python that mkbench was set up with. An installed program takes MKBENCH_OWN_PYTHON, which the
// wheel's console script sets; the default is the build's Python.
std::string own_python();

// The Python that runs programs of scripts/: MKBENCH_PYTHON of the environment, else own_python().
std::string python_of_scripts();

// Advice as the user sees it: in an installed program, advice that names a program of scripts/
// begins with "in a clone of mkbench: ".
std::string advice_here(const std::string& advice);

}  // namespace mkbench
