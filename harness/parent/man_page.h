// mkbench.1, made of the tables of flags, commands and verdicts.
#pragma once

#include <string>

namespace mkbench {

std::string man_page();

}  // namespace mkbench
