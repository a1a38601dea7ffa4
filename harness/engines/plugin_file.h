// Engines that are files, named by their path: libraries behind references/engine_abi.h, and Python
// classes like the one in references/decoder.py.
#pragma once

#include <string>
#include <string_view>

namespace mkbench {

// True if `engine` names a plugin: a path that ends in .so.
inline bool is_plugin(std::string_view engine) { return engine.ends_with(".so"); }

// True if `engine` names an engine written in Python: a path that ends in .py.
inline bool is_python_engine(std::string_view engine) { return engine.ends_with(".py"); }

// True if `engine` names an engine by the path of its file.
inline bool is_file_engine(std::string_view engine) {
  return is_plugin(engine) || is_python_engine(engine);
}

// The name of the maker that makes all plugins.
inline constexpr char kPluginMaker[] = "plugin";

// What reports, messages and hosts call an engine by: its path, and printable() of a path that is no
// UTF-8 or more than one line, because JSON and tables take no other text.
std::string engine_name(const std::string& path);
// The path of the engine that engine_name() calls `name`.
std::string engine_path(const std::string& name);

// Throws Error(kBadInput) when there is no such file. Loads nothing.
void check_plugin_file(const std::string& name);

// Throws Error(kBadInput) with the message "engine PATH: WHY".
[[noreturn]] void refuse_plugin(const std::string& path, const std::string& why);

}  // namespace mkbench
