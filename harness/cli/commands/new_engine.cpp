// `mkbench new-engine`: makes a folder with an engine to fill in, from scripts/templates/.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/archive/build_info.h"
#include "harness/cli/command_line.h"
#include "harness/device/program_output.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// A file of the new folder, and the files of mkbench that are concatenated into it.
struct NewFile {
  std::string name;
  std::vector<std::string> parts;
};

struct Language {
  std::string name;
  std::string source;  // what a person fills in
  std::string engine;  // what --engine names
  std::vector<NewFile> files;
};

const std::string kTemplates = "scripts/templates/";

std::vector<Language> make_languages() {
  const NewFile abi = {"engine_abi.h", {"references/engine_abi.h"}};
  const NewFile step = {"step_engine.h", {"references/step_engine.h"}};
  const NewFile on_cpu = {".github/workflows/mkbench-cpu.yml",
                          {kTemplates + "workflows/mkbench-cpu.yml"}};
  const NewFile on_gpu = {".github/workflows/mkbench-gpu.yml",
                          {kTemplates + "workflows/mkbench-gpu.yml"}};
  const auto makefile = [](const std::string& language) {
    return NewFile{"Makefile", {kTemplates + language + "/Makefile"}};
  };
  std::vector<Language> languages = {
      {"c", "engine.c", "engine.so", {abi, makefile("c"), on_cpu}},
      {"cpp", "engine.cpp", "engine.so", {abi, step, makefile("cpp"), on_cpu}},
      {"cuda", "engine.cu", "engine.so", {abi, step, makefile("cuda"), on_gpu}},
      {"python",
       "engine.py",
       "engine.py",
       {{"step_decoder.py", {"references/step_decoder.py"}}, on_cpu, on_gpu}},
  };
  for (Language& l : languages) {
    const std::string own = kTemplates + l.name + "/";
    // C++ and CUDA have one source, C and C++ one page.
    const std::string source = l.name == "cuda" ? kTemplates + "cpp/engine.cpp" : own + l.source;
    const std::string page = (l.name == "cpp" ? kTemplates + "c/" : own) + "README.md";
    const NewFile common[] = {{l.source, {source}},
                              {"README.md", {page, kTemplates + "README.md"}},
                              {"gate.sh", {kTemplates + "gate.sh"}},
                              {".gitignore", {kTemplates + "gitignore"}}};
    l.files.insert(l.files.begin(), std::begin(common), std::end(common));
  }
  return languages;
}

const std::vector<Language>& languages() {
  static const std::vector<Language> all = make_languages();
  return all;
}

const Language& language_of(const std::string& word) {
  std::string names;
  for (const Language& l : languages()) {
    if (l.name == word) return l;
    names += (names.empty() ? "" : ", ") + l.name;
  }
  bad_usage(fmt::format("mkbench new-engine: language: found '{}', wanted one of {}", word, names));
}

// The folder's name, changed as references/engine_abi.h requires: "my kernel" -> "my-kernel".
std::string engine_name(const fs::path& folder) {
  constexpr size_t kLongest = 40;
  std::string name = fs::absolute(folder / "x").lexically_normal().parent_path().filename();
  name = name.substr(0, kLongest);
  for (char& c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '-';
    if (!fits) c = '-';
  }
  return name.empty() ? "mine" : name;
}

std::string read_template(const std::string& name) {
  const fs::path path = data_root() / name;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.empty())
    throw Error(ErrorKind::kRuntime, fmt::format("mkbench new-engine: {} cannot be read: the "
                                                 "installation is not complete",
                                                 path.string()));
  return text;
}

// `text` with each `from` replaced by `to`.
std::string with_replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Makes the texts of all files, before any of them is written.
std::vector<std::pair<std::string, std::string>> new_texts(const Language& language,
                                                           const fs::path& folder) {
  const std::string commit = build_info().git_sha;
  const std::pair<std::string, std::string> marks[] = {
      {"@NAME@", engine_name(folder)},
      {"@SOURCE@", language.source},
      {"@ENGINE@", language.engine},
      {"@COMMIT@", commit == "unknown" ? "HEAD" : commit}};
  std::vector<std::pair<std::string, std::string>> texts;
  for (const NewFile& file : language.files) {
    std::string text;
    for (const std::string& part : file.parts)
      text += (text.empty() ? "" : "\n") + read_template(part);
    for (const auto& [mark, value] : marks) text = with_replaced(std::move(text), mark, value);
    texts.emplace_back(file.name, std::move(text));
  }
  return texts;
}

[[noreturn]] void refuse_folder(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::kBadInput, fmt::format("mkbench new-engine: {}: {}", path.string(), why));
}

// Makes sure that there is an empty folder at `path`.
void make_empty_folder(const fs::path& path) {
  std::error_code error;
  const fs::file_status found = fs::status(path, error);
  if (fs::exists(found) && !fs::is_directory(found))
    refuse_folder(path, "found a file, wanted an empty folder or none");
  if (!fs::exists(found)) fs::create_directories(path, error);
  if (error && !fs::is_directory(path)) refuse_folder(path, error.message());
  const bool empty = fs::is_empty(path, error);
  if (error) refuse_folder(path, error.message());
  if (!empty) refuse_folder(path, "the folder is not empty, and nothing is overwritten");
}

void write_new(const fs::path& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) refuse_folder(path, error.message());
  // "x": fails if the file was created in the meantime.
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) refuse_folder(path, std::strerror(errno));
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int problem = errno;
  if (std::fclose(file) == 0 && whole) return;
  if (whole) problem = errno;
  fs::remove(path, error);
  refuse_folder(path, std::strerror(problem));
}

// The commands in the first code block of a page.
std::string first_block(const std::string& page) {
  const std::string begin = "```sh\n";
  const size_t from = page.find(begin) + begin.size();
  return page.substr(from, page.find("```", from) - from);
}

void tell_next(const Language& language, const fs::path& folder,
               const std::vector<std::pair<std::string, std::string>>& texts) {
  fmt::print("{}:\n", folder.string());
  std::string commands;
  for (const auto& [name, text] : texts) {
    fmt::print("  {}{}\n", name, name == language.source ? "  <- your kernel goes here" : "");
    if (name == "README.md") commands = first_block(text);
  }
  fmt::print("\nnext:\ncd {}\n{}", shell_text({folder.string()}), commands);
}

void require_new_engine_arguments(CommandSettings& settings) {
  if (settings.arguments.size() != 2 || settings.arguments.front().empty())
    bad_usage("mkbench new-engine: name a new folder and a language: DIR c|cpp|cuda|python");
  language_of(settings.arguments[1]);
}

int new_engine_command(const CommandSettings& settings, const Invocation&) {
  const Language& language = language_of(settings.arguments[1]);
  const fs::path folder = settings.arguments[0];
  const auto texts = new_texts(language, folder);
  make_empty_folder(folder);
  std::vector<fs::path> written;
  try {
    for (const auto& [name, text] : texts) {
      write_new(folder / name, text);
      written.push_back(folder / name);
    }
  } catch (const Error&) {
    std::error_code ignored;
    for (const fs::path& file : written) fs::remove(file, ignored);
    throw;
  }
  if (!settings.quiet) tell_next(language, folder, texts);
  return 0;
}

}  // namespace

CommandRow new_engine_row() {
  return command_row<CommandSettings>(
      "new-engine", "make a folder with an engine of your own to fill in", "DIR c|cpp|cuda|python",
      {}, require_new_engine_arguments, new_engine_command);
}

}  // namespace mkbench
