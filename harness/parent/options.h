// The command line. Flags live in one table, from which the parser, the environment variables,
// --help and the report's meta.options come.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/device/host_machine.h"
#include "harness/device/nsight.h"
#include "harness/flow/job.h"
#include "harness/parent/hosts.h"

namespace mkbench {

struct CommandRow;

// --resident: whether all engines of a case are open at a time, or one.
enum class Resident { kAuto, kAll, kOne };

enum class DeviceChoice { kAuto, kCuda, kCpu };

// One flag's value as it was given, for meta.options of a report.
struct OptionValue {
  std::string name;
  std::string text;
  std::string source;  // "default", "environment", "command line"
};

// Paired blocks where they are not by time, and warm-up runs.
inline constexpr int kDefaultBlocks = 10, kDefaultWarmup = 1;

struct Options {
  const CommandRow* command = nullptr;
  std::vector<std::string> arguments;  // positional arguments
  std::optional<FailedStep> only{};    // parity: repeats this step alone
  std::string only_prompt{};           // parity: judges this prompt alone
  bool whole_parity = false;           // every check of parity, nothing timed

  std::vector<std::string> compare;
  std::vector<std::string> engines;  // empty: the device's default
  std::string python;                // of engines in Python, and for doctor; empty: the build's
  std::vector<std::string> models;   // empty: the device's default
  DeviceChoice device = DeviceChoice::kAuto;
  int gpu = 0;
  std::vector<int> n_prompt, n_gen, n_depth;
  std::vector<int32_t> ids;              // empty: drawn from the prompt's seed
  std::optional<int> processes, blocks;  // absent: the device's default
  int max_blocks = 0;
  double target_rel_ci = 0;   // 0 = off
  std::optional<int> warmup;  // absent: by time where blocks are, else kDefaultWarmup
  bool random_order = false;
  uint64_t seed = 0;
  uint64_t prompt_seed = 0;  // of the timed prompts: random where --seed is not given
  double confidence = 0;
  std::string baseline, save_baseline;  // names; empty: none
  std::vector<std::string> builds;      // compare: BASE and HEAD, build folders or engines' files
  std::optional<double> max_regress;    // gate: absent: the margin of the calibration
  bool history = false;                 // run: add the finished report to the history
  bool plot_history = false;            // history: draw it, too
  std::string label;                    // history add: what it calls the version
  bool fails_inconclusive = false;      // gate: INCONCLUSIVE is exit code 5
  bool parity_table = false;
  std::string reference;  // folder; empty: the committed ones
  bool require_reference = false;
  std::string format;
  std::string out;     // empty: mkbench-report-<time>
  std::string resume;  // folder of an interrupted run; empty: a new run
  std::string junit;   // file; empty: only junit.xml of the report's folder
  bool plot = true;
  NvtxMode nvtx = NvtxMode::kBlock;
  TelemetryMode telemetry = TelemetryMode::kOn;
  Resident resident = Resident::kAuto;
  double timeout_s = 0;      // of one call of an engine
  double time_budget_s = 0;  // for judging one engine
  bool ablations = false;    // diagnostics after the samples
  bool in_process = false;
  bool faults = false;                // selftest: plant the faults of the table
  bool timing = false;                // selftest: run the libraries of the faults of timing
  bool calibrate = false;             // selftest --timing: the whole form, stored for this machine
  std::string libraries;              // their folder; empty: tests/plugins of this build
  std::vector<std::string> rows;      // faults to plant; empty: all
  int tiles = 0;                      // audit: tiles of weights to change, of each part
  bool tiles_only = false;            // audit: no counters
  bool decode_once = false;           // audit: what a profiler counts
  std::vector<std::string> tensors;   // audit: parts of names; empty: all tensors
  std::optional<ProfileTool> tool;    // profile
  std::string kernel;                 // profile: of which ncu replays a launch; empty: of any
  int launch = 0;                     // profile: which launch ncu replays
  bool print_command = false;         // profile: print the tool's command, and run nothing
  bool token_ranges = false;          // profile: an NVTX range for each token
  bool timeline = false;              // profile: what blocks do inside the kernel, without a tool
  bool strict = false;                // doctor: any problem is exit code 6
  std::vector<Requirement> required;  // doctor: what an offer must have
  // soak: absent: the device's default
  std::optional<int64_t> soak_launches, soak_tokens;
  std::optional<int> soak_context;  // positions of the KV cache
  double soak_minutes = 0;
  bool soak_all_minutes = false;     // numbers that are reached do not end it
  std::optional<int64_t> soak_step;  // repeats this step alone
  std::string fleet_on;              // fleet: who runs its jobs
  bool read_values = false;          // inspect: read every weight, not the headers alone
  bool list_devices = false;
  bool dry_run = false;
  bool quiet = false;
  bool verbose = false;

  PlantedFault fault = PlantedFault::kNone;  // planted in the candidates, to test the gate

  std::vector<OptionValue> values;    // of every flag of the command, in table order
  std::vector<std::string> warnings;  // about the environment, for stderr
};

// Whether the flag was given, on the command line or by the environment.
bool was_given(const Options& options, std::string_view flag);

// What a command line that ends without a run (--help, --version) prints.
struct EarlyExit {
  int exit_code = 0;
  std::string text;  // for stdout
};

struct ParsedCommandLine {
  Options options;
  std::optional<EarlyExit> early_exit;  // --help, --version
};

// The value of an environment variable, or nothing.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// Commands take flags by groups.
enum FlagGroup : unsigned {
  kMeasureFlags = 1,  // what is timed, and how
  kJudgeFlags = 2,    // what is judged, and how it is reported
  kDeviceFlags = 4,   // cpu or cuda
  kCardFlags = 8,     // which card, and for how long
  kOutFlags = 16,     // where files go
  kSelftestFlags = 32,
  kTalkFlags = 64,        // every command has these
  kParityFlags = 128,     // of `mkbench parity` alone
  kDoctorFlags = 256,     // of `mkbench doctor` alone
  kAuditFlags = 512,      // of `mkbench audit` alone
  kPlotFlags = 1024,      // of `mkbench plot` alone
  kGateFlags = 2048,      // limits of two versions: `mkbench gate`, and `run --baseline`
  kGateOutFlags = 4096,   // of `mkbench gate` alone
  kHistoryFlags = 8192,   // of `mkbench history` alone
  kInspectFlags = 16384,  // of `mkbench inspect` alone
  kProfileFlags = 32768,  // of `mkbench profile`, some of them run's too
  kSoakFlags = 65536,     // of `mkbench soak` alone
  kFleetFlags = 131072,   // of `mkbench fleet` alone
};

struct Flag {
  std::string_view name;          // without dashes
  char letter;                    // 0 = none
  std::string_view value;         // what --help calls its value; empty for a switch
  std::string_view default_text;  // parsed like a given value; empty = none
  std::string_view help;
  unsigned group;  // bits of FlagGroup
  bool hidden;     // for tests: works, but --help does not show it
  void (*apply)(Options&, const std::string& text);

  bool is_switch() const { return value.empty(); }
  // True for a flag that may be repeated; its values are joined by commas.
  bool is_list() const { return value == "LIST" || value == "L"; }
  // The environment variable: MKBENCH_ and the name in upper case.
  std::string env() const;
};

const std::vector<Flag>& flag_table();

// What a command needs about the call of mkbench besides the options.
struct Invocation {
  const std::vector<std::string>& argv;
  StartHost start_host;
  bool in_process;  // engines run in this process (mkbench-all)
};

// A subcommand; the table is in commands/table.cpp.
struct CommandRow {
  std::string_view name;
  std::string_view help;       // one line
  std::string_view arguments;  // positional arguments as --help shows them; empty: none
  unsigned flags;              // bits of FlagGroup
  // Refuses wrong arguments and sets the options that the command implies. Null: nothing to do.
  void (*prepare)(Options&);
  // Returns the process's exit code.
  int (*run)(const Options&, const Invocation&);
};
std::span<const CommandRow> command_rows();

// Parses `args` (without the program's name): command line > environment > default.
// `environment_names` lists all MKBENCH_* variables that exist, to warn about unknown ones.
// Throws Error(kBadInput) naming the flag, and the nearest known one where it is unknown.
ParsedCommandLine parse_command_line(const std::vector<std::string>& args,
                                     const EnvironmentLookup& lookup,
                                     const std::vector<std::string>& environment_names);

// getenv() and the names of this process's MKBENCH_* variables.
EnvironmentLookup process_environment();
std::vector<std::string> process_environment_names();

// {"n-gen": {"value": "128", "source": "default"}, ...}
nlohmann::json options_to_json(const Options& options);

}  // namespace mkbench
