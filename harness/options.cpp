#include "harness/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "harness/worker/build_info.h"
#include "references/error.h"

namespace mkbench {
namespace {

[[noreturn]] void bad_usage(const std::string& message) {
  throw Error(ErrorKind::kBadInput, message);
}

template <typename T>
T parse_number(std::string_view flag, std::string_view text, T low, T high,
               std::string_view wanted) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(value >= low && value <= high)) {
    bad_usage(fmt::format("--{}: '{}' is not {}", flag, text, wanted));
  }
  return value;
}

constexpr int kIntMax = std::numeric_limits<int>::max();

int parse_int(std::string_view flag, std::string_view text, int minimum) {
  return parse_number<int>(flag, text, minimum, kIntMax,
                           fmt::format("a whole number of at least {}", minimum));
}

bool parse_switch(std::string_view flag, const std::string& text) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  bad_usage(fmt::format("--{}: '{}' is neither on nor off", flag, text));
}

template <typename T>
T parse_choice(std::string_view flag, const std::string& text,
               const std::vector<std::pair<std::string, T>>& choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  bad_usage(fmt::format("--{}: '{}' is not one of {}", flag, text, names));
}

// Words that later versions will know: refused with a reason, never taken silently.
void refuse_later(std::string_view flag, const std::vector<std::string>& words,
                  const std::vector<std::string>& known, const std::vector<std::string>& later) {
  for (const std::string& word : words) {
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    if (std::find(later.begin(), later.end(), word) != later.end() ||
        (flag == "engine" && word.ends_with(".so"))) {
      bad_usage(fmt::format("--{}: '{}' is not available in this version", flag, word));
    }
    const std::string nearest = nearest_word(word, known);
    bad_usage(fmt::format("--{}: '{}' is unknown{}; known: {}", flag, word,
                          nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest),
                          fmt::join(known, ", ")));
  }
}

std::vector<std::string> parse_engines(const std::string& text) {
  const std::vector<std::string> words = parse_word_list("engine", text);
  refuse_later("engine", words, {"megakernel", "plain", "host-twin"}, {"ring"});
  return words;
}

std::vector<std::string> parse_baselines(const std::string& text) {
  const std::vector<std::string> words = parse_word_list("compare", text);
  refuse_later("compare", words, {"eager"}, {"graph", "compiled"});
  return words;
}

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& word : parse_word_list("ids", text)) {
    ids.push_back(
        parse_number<int32_t>("ids", word, 0, std::numeric_limits<int32_t>::max(), "a token id"));
  }
  return ids;
}

double parse_relative(std::string_view flag, const std::string& text) {
  if (text == "off") return 0;
  return parse_number<double>(flag, text, std::numeric_limits<double>::min(), 1.0,
                              "'off' or a number in (0, 1]");
}

double parse_confidence(const std::string& text) {
  return parse_number<double>("confidence", text, 0.5, 0.9999, "a number in [0.5, 0.9999]");
}

double parse_seconds(const std::string& text) {
  return parse_number<double>("timeout", text, 0.1, 1e7, "a number of seconds of at least 0.1");
}

std::string parse_test_worker(const std::string& text) {
  const std::string mode = text.substr(0, text.find(':'));
  parse_choice<int>("test-worker", mode,
                    {{"hang", 0}, {"crash", 1}, {"kill", 2}, {"memory", 3}, {"slow", 4}});
  return text;
}

void set_parity(Options&, const std::string& text) {
  if (text == "all") bad_usage("--parity: 'all' is not available in this version; 'prompt' is");
  parse_choice<int>("parity", text, {{"prompt", 0}});
}

constexpr unsigned bit(Command c) { return 1u << static_cast<unsigned>(c); }
constexpr unsigned kRunOnly = bit(Command::kRun);
constexpr unsigned kRunAndDoctor = kRunOnly | bit(Command::kDoctor);
constexpr unsigned kAll = kRunAndDoctor | bit(Command::kPlot) | bit(Command::kList);

// Commands and flags of later versions, so that a script written for one of them fails with a clear
// message.
const std::vector<std::string> kLaterCommands = {"parity", "selftest", "soak",  "profile",
                                                 "tune",   "gate",     "verify"};
const std::vector<std::string> kLaterFlags = {"save-baseline", "baseline", "max-regress", "fail-on",
                                              "profile",       "junit",    "faults"};
const std::vector<std::pair<std::string, Command>> kCommands = {{"run", Command::kRun},
                                                                {"doctor", Command::kDoctor},
                                                                {"plot", Command::kPlot},
                                                                {"list", Command::kList}};

// Environment variables that are not flags.
const std::vector<std::string> kOtherVariables = {
    "MKBENCH_DATA_DIR",      "MKBENCH_PYTHON", "MKBENCH_SPIN_SCALE",
    "MKBENCH_VENV",          "MKBENCH_PRESET", "MKBENCH_CUDA_ARCHITECTURES",
    "MKBENCH_USE_PYPI_CUDA", "MKBENCH_JOBS"};

std::string upper_env(std::string_view name) {
  std::string env = "MKBENCH_";
  for (const char c : name) {
    env += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return env;
}

std::vector<std::string> visible_names(unsigned mask) {
  std::vector<std::string> names;
  for (const Flag& flag : flag_table()) {
    if (!flag.hidden && (flag.commands & mask) != 0) names.emplace_back(flag.name);
  }
  return names;
}

[[noreturn]] void refuse_extra(const std::string& extra, Command command,
                               std::string_view command_name) {
  if (extra.size() > 1 && extra[0] == '-') {
    const std::string name = extra.substr(extra.find_first_not_of('-'));
    const std::string bare = name.substr(0, name.find('='));
    if (std::find(kLaterFlags.begin(), kLaterFlags.end(), bare) != kLaterFlags.end()) {
      bad_usage(fmt::format("--{} is not available in this version", bare));
    }
    const std::string nearest = nearest_word(bare, visible_names(bit(command)));
    bad_usage(fmt::format("unknown flag '{}' of 'mkbench {}'{}; --help lists all", extra,
                          command_name,
                          nearest.empty() ? "" : fmt::format("; did you mean '--{}'?", nearest)));
  }
  bad_usage(fmt::format("unexpected argument '{}' of 'mkbench {}'", extra, command_name));
}

// Takes the command off the arguments: a first word that is no flag.
std::pair<std::string, Command> take_command(std::vector<std::string>& args) {
  if (args.empty() || args[0].empty() || args[0][0] == '-') return {"run", Command::kRun};
  const std::string word = args[0];
  for (const auto& [name, command] : kCommands) {
    if (name == word) {
      args.erase(args.begin());
      return {name, command};
    }
  }
  if (std::find(kLaterCommands.begin(), kLaterCommands.end(), word) != kLaterCommands.end()) {
    bad_usage(fmt::format("command '{}' is not available in this version", word));
  }
  std::vector<std::string> names;
  for (const auto& entry : kCommands) names.push_back(entry.first);
  const std::string nearest = nearest_word(word, names);
  bad_usage(fmt::format("unknown command '{}'{}; commands: {}", word,
                        nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest),
                        fmt::join(names, ", ")));
}

// Checks that concern several flags, or a command's positional arguments.
void check_together(Options& options) {
  const auto given = [&](std::string_view name) {
    const auto at = std::find_if(options.values.begin(), options.values.end(),
                                 [&](const OptionValue& v) { return v.name == name; });
    return at != options.values.end() && at->source != "default";
  };
  if (options.max_blocks < options.blocks) {
    if (given("max-blocks")) {
      bad_usage(
          fmt::format("--max-blocks {} is below --blocks {}", options.max_blocks, options.blocks));
    }
    options.max_blocks = options.blocks;
  }
  if (!options.ids.empty() && given("n-depth")) {
    bad_usage("--ids and --n-depth exclude each other: the depth is the number of ids less one");
  }
  if (!options.ids.empty() && given("n-prompt"))
    bad_usage("--ids and --n-prompt exclude each other");
  if (options.command == Command::kPlot && options.arguments.empty()) {
    bad_usage("mkbench plot: name at least one report.json or report folder");
  }
  if (options.command == Command::kList) {
    for (const std::string& word : options.arguments) {
      parse_choice<int>("list", word, {{"engines", 0}, {"models", 1}, {"devices", 2}});
    }
  }
}

struct CliApp {
  CLI::App app;
  std::vector<std::string> given;     // one a table entry
  std::vector<CLI::Option*> handles;  // null where the command has no such flag
  std::vector<std::string> arguments;
};

void build_app(CliApp& cli, const std::string& command_name, Command command) {
  const std::vector<Flag>& table = flag_table();
  cli.given.resize(table.size());
  cli.handles.assign(table.size(), nullptr);
  cli.app.name(command == Command::kRun ? "mkbench [run]" : "mkbench " + command_name);
  cli.app.description(
      "mkbench: is a single-kernel LLM decoder right, how fast is it, and where does the time go?\n"
      "Commands: run (default), doctor, plot REPORT..., list [engines|models|devices]");
  cli.app.footer(
      "Every flag has an environment variable: MKBENCH_ and its name in upper case, - as _ "
      "(MKBENCH_N_GEN).\n"
      "Command line > environment > default. L is a list: 16,32 or 0-4096*2 or 128-1024+128.");
  cli.app.set_help_flag("-h,--help", "this text");
  cli.app.allow_extras();
  for (size_t i = 0; i < table.size(); ++i) {
    const Flag& flag = table[i];
    if ((flag.commands & bit(command)) == 0) continue;
    std::string names = fmt::format("--{}", flag.name);
    if (flag.letter != 0) names = fmt::format("-{},{}", flag.letter, names);
    std::string help(flag.help);
    if (!flag.default_text.empty() && !flag.is_switch())
      help += fmt::format(" [{}]", flag.default_text);
    if (flag.is_switch()) {
      if (flag.default_text == "on") names += fmt::format(",!--no-{}", flag.name);
      cli.handles[i] = cli.app.add_flag(names, cli.given[i], help);
    } else {
      cli.handles[i] =
          cli.app.add_option(names, cli.given[i], help)->type_name(std::string(flag.value));
      if (flag.is_list()) cli.handles[i]->join(',');
    }
    if (flag.hidden) cli.handles[i]->group("");
  }
  if (command == Command::kPlot || command == Command::kList) {
    cli.app.add_option("arguments", cli.arguments,
                       command == Command::kPlot ? "reports to plot" : "what to list");
  }
}

}  // namespace

std::string Flag::env() const { return upper_env(name); }

const std::vector<Flag>& flag_table() {
  using O = Options;
  using S = const std::string&;
  static const std::vector<Flag> table = {
      {"compare", 0, "LIST", "eager", "baselines: eager", kRunOnly, false,
       [](O& o, S t) { o.compare = parse_baselines(t); }},
      {"engine", 0, "LIST", "",
       "candidates: megakernel, plain, host-twin [megakernel; host-twin on cpu]", kRunOnly, false,
       [](O& o, S t) { o.engines = parse_engines(t); }},
      {"model", 0, "LIST", "",
       "tiny, tiny-untied, synthetic[:LAGSET], a snapshot folder, a hub id in the local cache; "
       "each is a case "
       "[synthetic; tiny,tiny-untied on cpu]",
       kRunOnly, false, [](O& o, S t) { o.models = parse_word_list("model", t); }},
      {"device", 0, "auto|cuda|cpu", "auto",
       "auto = cuda where a usable GPU is, else cpu; cuda never falls back", kRunAndDoctor, false,
       [](O& o, S t) {
         o.device = parse_choice<DeviceChoice>("device", t,
                                               {{"auto", DeviceChoice::kAuto},
                                                {"cuda", DeviceChoice::kCuda},
                                                {"cpu", DeviceChoice::kCpu}});
       }},
      {"gpu", 0, "N", "0", "which card", kRunAndDoctor, false,
       [](O& o, S t) { o.gpu = parse_int("gpu", t, 0); }},
      {"n-prompt", 'p', "L", "0", "prefill tests of so many ids (ppN); 0 = none", kRunOnly, false,
       [](O& o, S t) { o.n_prompt = parse_int_list("n-prompt", t, 0); }},
      {"n-gen", 'n', "L", "128", "timed tokens (tgN)", kRunOnly, false,
       [](O& o, S t) { o.n_gen = parse_int_list("n-gen", t, 1); }},
      {"n-depth", 'd', "L", "0", "KV rows before the first timed step", kRunOnly, false,
       [](O& o, S t) { o.n_depth = parse_int_list("n-depth", t, 0); }},
      {"ids", 0, "LIST", "", "prompt ids instead of the reference's", kRunOnly, false,
       [](O& o, S t) { o.ids = parse_ids(t); }},
      {"blocks", 0, "N", "10", "paired blocks", kRunOnly, false,
       [](O& o, S t) { o.blocks = parse_int("blocks", t, 1); }},
      {"max-blocks", 0, "N", "30", "most blocks that --target-rel-ci may take", kRunOnly, false,
       [](O& o, S t) { o.max_blocks = parse_int("max-blocks", t, 1); }},
      {"target-rel-ci", 0, "X", "off",
       "add blocks until the confidence interval's half-width is below this share", kRunOnly, false,
       [](O& o, S t) { o.target_rel_ci = parse_relative("target-rel-ci", t); }},
      {"warmup", 0, "N", "1", "untimed runs of each engine before the blocks", kRunOnly, false,
       [](O& o, S t) { o.warmup = parse_int("warmup", t, 0); }},
      {"order", 0, "abba|random", "abba", "order of the engines inside the blocks", kRunOnly, false,
       [](O& o, S t) {
         o.random_order = parse_choice<bool>("order", t, {{"abba", false}, {"random", true}});
       }},
      {"seed", 0, "S", "1", "of prompts, orders and bootstraps", kRunOnly, false,
       [](O& o, S t) {
         o.seed = parse_number<uint64_t>("seed", t, 0, std::numeric_limits<uint64_t>::max(),
                                         "a whole number of at least 0");
       }},
      {"confidence", 0, "C", "0.95", "of intervals", kRunOnly, false,
       [](O& o, S t) { o.confidence = parse_confidence(t); }},
      {"parity", 0, "prompt", "prompt", "parity is never off", kRunOnly, false, set_parity},
      {"parity-table", 0, "", "", "print the parity table also when parity passes", kRunOnly, false,
       [](O& o, S t) { o.parity_table = parse_switch("parity-table", t); }},
      {"reference", 0, "DIR", "",
       "references (DIR/<model>/reference*.json) instead of the committed ones", kRunOnly, false,
       [](O& o, S t) { o.reference = t; }},
      {"require-reference", 0, "", "", "a model without a committed reference is INVALID_REFERENCE",
       kRunOnly, false,
       [](O& o, S t) { o.require_reference = parse_switch("require-reference", t); }},
      {"output", 'o', "md|json|jsonl|csv|sql", "md", "format of stdout; files are always written",
       kRunOnly, false,
       [](O& o, S t) {
         parse_choice<int>("output", t,
                           {{"md", 0}, {"json", 0}, {"jsonl", 0}, {"csv", 0}, {"sql", 0}});
         o.format = t;
       }},
      {"out", 0, "DIR", "", "new folder of the report's files [mkbench-report-<time>]",
       kRunOnly | bit(Command::kPlot), false, [](O& o, S t) { o.out = t; }},
      {"plot", 0, "", "on", "draw plots (a Python with matplotlib does)", kRunOnly, false,
       [](O& o, S t) { o.plot = parse_switch("plot", t); }},
      {"nvtx", 0, "off|block", "block", "NVTX ranges in the domain mkbench", kRunOnly, false,
       [](O& o, S t) {
         if (t == "token") bad_usage("--nvtx: 'token' is not available in this version");
         o.nvtx = parse_choice<NvtxMode>("nvtx", t,
                                         {{"off", NvtxMode::kOff}, {"block", NvtxMode::kBlock}});
       }},
      {"timeout", 0, "S", "300", "seconds for a case; then HANG or TIMEOUT", kRunAndDoctor, false,
       [](O& o, S t) { o.timeout_s = parse_seconds(t); }},
      {"in-process", 0, "", "",
       "no worker process and no deadline: for debuggers, ncu, compute-sanitizer", kRunOnly, false,
       [](O& o, S t) { o.in_process = parse_switch("in-process", t); }},
      {"list-devices", 0, "", "", "print the devices and end", kRunOnly, false,
       [](O& o, S t) { o.list_devices = parse_switch("list-devices", t); }},
      {"dry-run", 0, "", "", "print cases, memory needed and free, and estimated time; run nothing",
       kRunOnly, false, [](O& o, S t) { o.dry_run = parse_switch("dry-run", t); }},
      {"quiet", 'q', "", "", "no progress", kAll, false,
       [](O& o, S t) { o.quiet = parse_switch("quiet", t); }},
      {"verbose", 'v', "", "", "more progress", kAll, false,
       [](O& o, S t) { o.verbose = parse_switch("verbose", t); }},
      {"plant-fault", 0, "NAME", "", "a fault in the candidates that the gate must see", kRunOnly,
       true,
       [](O& o, S t) {
         o.fault = parse_choice<PlantedFault>("plant-fault", t,
                                              {{"rope_theta", PlantedFault::kRopeTheta},
                                               {"swap_gate_up", PlantedFault::kSwapGateUp},
                                               {"cache_length", PlantedFault::kCacheLength}});
       }},
      {"test-worker", 0, "MODE:ENGINE", "",
       "a worker that hangs, crashes, is killed, runs out of memory, is slow", kRunOnly, true,
       [](O& o, S t) { o.test_worker = parse_test_worker(t); }},
  };
  return table;
}

ParsedCommandLine parse_command_line(const std::vector<std::string>& args,
                                     const EnvironmentLookup& lookup,
                                     const std::vector<std::string>& environment_names) {
  ParsedCommandLine parsed;
  std::vector<std::string> rest = args;
  const auto [command_name, command] = take_command(rest);
  Options& options = parsed.options;
  options.command = command;
  if (std::find(rest.begin(), rest.end(), "--version") != rest.end()) {
    parsed.early_exit = EarlyExit{0, version_text() + "\n"};
    return parsed;
  }
  CliApp cli;
  build_app(cli, command_name, command);
  try {
    std::vector<std::string> reversed(rest.rbegin(),
                                      rest.rend());  // CLI11 takes them from the back
    cli.app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    parsed.early_exit = EarlyExit{0, cli.app.help()};
    return parsed;
  } catch (const CLI::ParseError& error) {
    // CLI11's own exit codes (106, 109, ...) are not ours.
    bad_usage(error.what());
  }
  if (const std::vector<std::string> extras = cli.app.remaining(); !extras.empty()) {
    refuse_extra(extras.front(), command, command_name);
  }
  const std::vector<Flag>& table = flag_table();
  std::vector<std::string> known = kOtherVariables;
  for (size_t i = 0; i < table.size(); ++i) {
    const Flag& flag = table[i];
    known.push_back(flag.env());
    if (cli.handles[i] == nullptr) continue;
    OptionValue value{std::string(flag.name), std::string(flag.default_text), "default"};
    if (cli.handles[i]->count() > 0) {
      value.text = cli.given[i];
      value.source = "command line";
    } else if (const std::optional<std::string> text = lookup(flag.env())) {
      value.text = *text;
      value.source = "environment";
    }
    const bool given = value.source != "default";
    if (given && value.text.empty()) {
      bad_usage(fmt::format("{} is empty",
                            value.source == "environment" ? flag.env() : "--" + value.name));
    }
    try {
      if (!value.text.empty()) flag.apply(options, value.text);
    } catch (const Error& error) {
      if (value.source != "environment") throw;
      bad_usage(fmt::format("{} (from {})", error.what(), flag.env()));
    }
    if (!flag.hidden || given) options.values.push_back(value);
  }
  options.arguments = cli.arguments;
  check_together(options);
  for (const std::string& name : environment_names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_word(name, known);
    options.warnings.push_back(
        fmt::format("environment variable {} is unknown and ignored{}", name,
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
  return parsed;
}

EnvironmentLookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

std::vector<std::string> process_environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (text.starts_with("MKBENCH_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

nlohmann::json options_to_json(const Options& options) {
  nlohmann::json all = nlohmann::json::object();
  for (const OptionValue& value : options.values) {
    all[value.name] = {{"value", value.text}, {"source", value.source}};
  }
  return all;
}

std::vector<std::string> parse_word_list(std::string_view flag, const std::string& text) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) bad_usage(fmt::format("--{}: '{}' has an empty item", flag, text));
    const std::string word = text.substr(begin, end - begin);
    words.push_back(word);
    begin = end + 1;
  }
  return words;
}

namespace {

// One item of a list: a number, "first-last*factor" or "first-last+step".
void append_range(std::string_view flag, const std::string& item, int minimum,
                  std::vector<int>& values) {
  const size_t dash = item.find('-', 1);
  if (dash == std::string::npos) {
    values.push_back(parse_int(flag, item, minimum));
    return;
  }
  const size_t sign = item.find_first_of("*+", dash);
  if (sign == std::string::npos) {
    bad_usage(
        fmt::format("--{}: range '{}' needs a step, as in 0-4096*2 or 128-1024+128", flag, item));
  }
  const std::string_view view(item);
  const int first = parse_int(flag, view.substr(0, dash), minimum);
  const int last = parse_int(flag, view.substr(dash + 1, sign - dash - 1), minimum);
  const bool multiply = item[sign] == '*';
  const int step = parse_int(flag, view.substr(sign + 1), multiply ? 2 : 1);
  if (last < first) bad_usage(fmt::format("--{}: range '{}' ends before it starts", flag, item));
  constexpr size_t kMostValues = 4096;
  for (int64_t value = first; value <= last;) {
    values.push_back(static_cast<int>(value));
    if (values.size() > kMostValues) {
      bad_usage(fmt::format("--{}: '{}' stands for more than {} values", flag, item, kMostValues));
    }
    // From 0 a factor cannot move on: 0-4096*2 is 0, 1, 2, 4, ...
    value = !multiply ? value + step : value == 0 ? 1 : value * step;
  }
}

}  // namespace

std::vector<int> parse_int_list(std::string_view flag, const std::string& text, int minimum) {
  std::vector<int> values;
  for (const std::string& item : parse_word_list(flag, text))
    append_range(flag, item, minimum, values);
  std::vector<int> once;
  for (const int value : values) {
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
  }
  return once;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace mkbench
