#include "harness/parent/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <sstream>

#include "harness/parent/build_info.h"
#include "harness/parent/shell_words.h"
#include "harness/report/verdict.h"

namespace mkbench {
namespace {

// The day on which the texts of this file were last changed.
constexpr char kDate[] = "2026-11-24";

constexpr size_t kLineBytes = 76;

// Text as roff shows it: a minus that can be copied.
std::string roff(std::string_view text) {
  return with_replaced(with_replaced(std::string(text), "\\", "\\e"), "-", "\\-");
}

// `text`, which is roff already, in short lines, none of which begins a request.
std::string filled(const std::string& text) {
  std::istringstream words(text);
  std::string lines, line;
  const auto end_line = [&] {
    if (line.empty()) return;
    if (line[0] == '.' || line[0] == '\'') line.insert(0, "\\&");
    lines += line + "\n";
    line.clear();
  };
  for (std::string word; words >> word;) {
    if (line.size() + word.size() >= kLineBytes) end_line();
    line += (line.empty() ? "" : " ") + word;
  }
  end_line();
  return lines;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", roff(text)); }
std::string italic(std::string_view text) {
  return text.empty() ? "" : fmt::format(" \\fI{}\\fR", roff(text));
}

// A term and what is said of it.
std::string man_item(const std::string& term, const std::string& text) {
  return fmt::format(".TP\n{}\n{}", term, filled(text));
}

std::string commands_section() {
  std::string text = ".SH COMMANDS\n";
  for (const CommandRow& row : command_rows())
    text += man_item(bold(row.name) + italic(row.arguments), roff(row.help));
  return text;
}

std::string flag_text(const Flag& flag) {
  std::vector<std::string> terms;
  for (const std::string& spelling : spellings_of(flag))
    terms.push_back(bold(spelling) + italic(flag.value));
  std::string text = roff(flag.help) + ". ";
  if (!flag.default_text.empty() && !flag.is_switch())
    text += fmt::format("Default: {}. ", roff(flag.default_text));
  text += fmt::format("Taken by {}.", roff(fmt::format("{}", fmt::join(commands_of(flag), ", "))));
  return man_item(fmt::format("{}", fmt::join(terms, ", ")), text);
}

std::string options_section() {
  std::string text =
      ".SH OPTIONS\nEach option is followed by the commands that take it.\n" +
      filled(
          "A flag of the value \\fILIST\\fR or \\fIL\\fR may be repeated, or its items are "
          "joined by commas.");
  for (const Flag* flag : shown_flags()) text += flag_text(*flag);
  for (const CommonFlag& flag : kCommonFlags) {
    const std::string letter = flag.letter != 0 ? bold(fmt::format("-{}", flag.letter)) + ", " : "";
    text += man_item(letter + bold(fmt::format("--{}", flag.name)), roff(flag.help) + ".");
  }
  return text;
}

std::string exit_codes_section() {
  std::map<int, std::vector<std::string_view>> names;
  for (const VerdictInfo& info : verdict_table()) names[info.exit_code].push_back(info.name);
  std::string text = ".SH EXIT STATUS\nThe worst verdict of a run decides.\n";
  for (const auto& [code, verdicts] : names)
    text +=
        man_item(bold(std::to_string(code)), roff(fmt::format("{}", fmt::join(verdicts, ", "))));
  return text;
}

std::string environment_section() {
  return ".SH ENVIRONMENT\n" +
         filled(
             "Every option has a variable: MKBENCH_ and its name in upper case, with _ for \\-, as "
             "in "
             "MKBENCH_N_GEN. The command line comes before the environment, and the environment "
             "before the default.") +
         man_item(bold("MKBENCH_DATA_DIR"),
                  "The folder of the committed checkpoints and references.") +
         man_item(bold("MKBENCH_PYTHON"),
                  "The Python that draws plots, writes pages and runs engines in Python.") +
         man_item(bold("XDG_CACHE_HOME") + ", " + bold("XDG_DATA_HOME"),
                  "Where packages of the baseline compiled are kept, and baselines, history and "
                  "calibrations.");
}

std::string files_section() {
  return ".SH FILES\n" +
         man_item("\\fImkbench\\-report\\-<time>\\fR",
                  "The folder of a run: report.json, report.md, report.html, junit.xml, plots.") +
         man_item("\\fI~/.local/share/mkbench\\fR, \\fI~/.cache/mkbench\\fR",
                  "What is kept between runs.") +
         ".SH EXAMPLES\n"
         ".nf\nmkbench \\-\\-compare eager\nmkbench \\-\\-engine ./kernel.so \\-\\-model tiny "
         "\\-\\-device cpu\nmkbench doctor\n.fi\n";
}

}  // namespace

std::string man_page() {
  std::string text =
      fmt::format(".\\\" printed by: mkbench manpage\n.TH MKBENCH 1 {} \"mkbench {}\"\n", kDate,
                  roff(build_info().version)) +
      ".SH NAME\nmkbench \\- judge and time LLM decoders that are one kernel\n"
      ".SH SYNOPSIS\n.B mkbench\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...\n"
      ".SH DESCRIPTION\n" +
      filled(fmt::format(
          "mkbench judges engines that decode with a large language model against references, and "
          "times those that are right beside a baseline. Without a command it does what {} does.",
          bold(command_rows().front().name)));
  return text + commands_section() + options_section() + environment_section() +
         exit_codes_section() + files_section();
}

}  // namespace mkbench
