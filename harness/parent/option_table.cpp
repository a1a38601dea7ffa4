// The one list of flags.
#include <cctype>

#include "harness/flow/soak_steps.h"
#include "harness/parent/option_values.h"
#include "harness/parent/option_words.h"
#include "harness/parent/options.h"

namespace mkbench {

std::string Flag::env() const {
  std::string variable = "MKBENCH_";
  for (const char c : name) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

const std::vector<Flag>& flag_table() {
  using O = Options;
  using S = const std::string&;
  static const std::vector<Flag> table = {
      {"compare", 0, "LIST", "eager",
       "baselines (mkbench list engines); none = nothing is compared with: eager only judges "
       "parity",
       kMeasureFlags, false, [](O& o, S t) { o.compare = parse_baselines(t); }},
      {"engine", 0, "LIST", "",
       "candidates (mkbench list engines), or a path: a library .so (references/engine_abi.h), a "
       "file .py (references/decoder.py) [megakernel; host-twin on cpu]",
       kJudgeFlags, false, [](O& o, S t) { o.engines = parse_engines(t); }},
      {"python", 0, "PATH", "",
       "the Python that runs engines .py [the one that mkbench was set up with]",
       kJudgeFlags | kProfileFlags | kSoakFlags, false, [](O& o, S t) { o.python = t; }},
      {"model", 0, "LIST", "",
       "models (mkbench list models), a snapshot folder, a hub id in the local cache; each is a "
       "case [synthetic; tiny,tiny-untied on cpu]; selftest --faults: synthetic:SHAPE, whose four "
       "layers get the faults that depend on a shape [the whole table]",
       kJudgeFlags | kProfileFlags | kSelftestFlags, false, [](O& o, S t) { o.models = parse_word_list("model", t); }},
      {"device", 0, "auto|cuda|cpu", "auto",
       "auto = cuda where a usable GPU is, else cpu; cuda never falls back", kDeviceFlags, false,
       [](O& o, S t) {
         o.device = parse_choice<DeviceChoice>("device", t,
                                               {{"auto", DeviceChoice::kAuto},
                                                {"cuda", DeviceChoice::kCuda},
                                                {"cpu", DeviceChoice::kCpu}});
       }},
      {"gpu", 0, "N", "0", "which card", kCardFlags, false,
       [](O& o, S t) { o.gpu = parse_int("gpu", t, 0); }},
      {"n-prompt", 'p', "L", "0", "prefill tests of so many ids (ppN); 0 = none", kMeasureFlags,
       false, [](O& o, S t) { o.n_prompt = parse_int_list("n-prompt", t, 0); }},
      {"n-gen", 'n', "L", "128", "timed tokens (tgN)", kMeasureFlags, false,
       [](O& o, S t) { o.n_gen = parse_int_list("n-gen", t, 1); }},
      {"n-depth", 'd', "L", "0", "KV rows before the first timed step",
       kMeasureFlags | kProfileFlags, false, [](O& o, S t) { o.n_depth = parse_int_list("n-depth", t, 0); }},
      {"ids", 0, "LIST", "", "prompt ids instead of drawn ones; each block draws the last one anew",
       kMeasureFlags | kProfileFlags, false, [](O& o, S t) { o.ids = parse_ids(t); }},
      {"processes", 0, "P", "",
       "fresh processes in which every timed engine is opened; the blocks are spread over them [5; "
       "1 on cpu and with --in-process; a turn each with --resident one]",
       kMeasureFlags, false, [](O& o, S t) { o.processes = parse_int("processes", t, 1); }},
      {"blocks", 0, "N", "",
       "paired blocks, over all processes [3 s of samples of each engine on a GPU; 10 on cpu and "
       "with --in-process]",
       kMeasureFlags, false, [](O& o, S t) { o.blocks = parse_int("blocks", t, 1); }},
      {"max-blocks", 0, "N", "30", "most blocks that --target-rel-ci may take", kMeasureFlags,
       false, [](O& o, S t) { o.max_blocks = parse_int("max-blocks", t, 1); }},
      {"target-rel-ci", 0, "X", "off",
       "add blocks until the confidence interval's half-width is below this share", kMeasureFlags,
       false, [](O& o, S t) { o.target_rel_ci = parse_relative("target-rel-ci", t); }},
      {"warmup", 0, "N", "",
       "untimed runs of each engine before its blocks [until time and clock have settled, where "
       "--blocks is by time; else 1]",
       kMeasureFlags, false, [](O& o, S t) { o.warmup = parse_int("warmup", t, 0); }},
      {"order", 0, "abba|random", "abba", "order of the engines inside the blocks", kMeasureFlags,
       false,
       [](O& o, S t) {
         o.random_order = parse_choice<bool>("order", t, {{"abba", false}, {"random", true}});
       }},
      {"seed", 0, "S", "1",
       "of prompts, orders and bootstraps; timed prompts differ between runs unless it is given",
       kJudgeFlags | kProfileFlags, false,
       [](O& o, S t) { o.seed = parse_seed(t); }},
      {"confidence", 0, "C", "0.95", "of intervals", kMeasureFlags, false,
       [](O& o, S t) { o.confidence = parse_confidence(t); }},
      {"parity", 0, "prompt", "prompt", "parity is never off", kMeasureFlags, false,
       [](Options&, S t) {
         parse_choice<int>("parity", t, {{"prompt", 0}});
       }},
      {"parity-table", 0, "", "", "print the whole parity table also when parity passes",
       kJudgeFlags, false, [](O& o, S t) { o.parity_table = parse_switch("parity-table", t); }},
      {"reference", 0, "DIR", "",
       "references (DIR/<model>/reference*.json) instead of the committed ones", kJudgeFlags, false,
       [](O& o, S t) { o.reference = t; }},
      {"require-reference", 0, "", "", "a model without a committed reference is INVALID_REFERENCE",
       kJudgeFlags, false,
       [](O& o, S t) { o.require_reference = parse_switch("require-reference", t); }},
      {"output", 'o', "md|json|jsonl|csv|sql", "md", "format of stdout; files are always written",
       kJudgeFlags, false,
       [](O& o, S t) {
         parse_choice<int>("output", t,
                           {{"md", 0}, {"json", 0}, {"jsonl", 0}, {"csv", 0}, {"sql", 0}});
         o.format = t;
       }},
      {"out", 0, "DIR", "", "new folder of the report's files [mkbench-report-<time>]", kOutFlags,
       false, [](O& o, S t) { o.out = t; }},
      {"resume", 0, "DIR", "",
       "go on with the interrupted run of this folder, with its options: finished cases are taken "
       "over",
       kJudgeFlags, false, [](O& o, S t) { o.resume = t; }},
      {"out", 0, "DIR", "", "folder of the plots [plots, beside the first report]", kPlotFlags,
       false, [](O& o, S t) { o.out = t; }},
      {"junit", 0, "FILE", "", "write the result as JUnit XML here too",
       kJudgeFlags | kGateOutFlags, false,
       [](O& o, S t) { o.junit = t; }},
      {"plot", 0, "", "on",
       "draw plots and write report.html (a Python with vl-convert does)",
       kMeasureFlags, false,
       [](O& o, S t) { o.plot = parse_switch("plot", t); }},
      {"nvtx", 0, "off|block", "block", "NVTX ranges in the domain mkbench", kMeasureFlags, false,
       [](O& o, S t) {
         o.nvtx = parse_choice<NvtxMode>("nvtx", t,
                                         {{"off", NvtxMode::kOff}, {"block", NvtxMode::kBlock}});
       }},
      {"telemetry", 0, "on|off|alternate", "on",
       "read clocks, power and throttle reasons of the card while an engine is timed; alternate = "
       "in every other block, to see what the reading costs",
       kMeasureFlags, false,
       [](O& o, S t) {
         o.telemetry = parse_choice<TelemetryMode>("telemetry", t,
                                                   {{"on", TelemetryMode::kOn},
                                                    {"off", TelemetryMode::kOff},
                                                    {"alternate", TelemetryMode::kAlternate}});
       }},
      {"timeout", 0, "S", "300", "seconds for one call of an engine; then HANG or TIMEOUT",
       kCardFlags, false, [](O& o, S t) { o.timeout_s = parse_seconds("timeout", t); }},
      {"time-budget", 0, "S", "240",
       "seconds for judging one engine; INCOMPLETE where they end before what a pass needs",
       kJudgeFlags, false, [](O& o, S t) { o.time_budget_s = parse_seconds("time-budget", t); }},
      {"ablations", 0, "", "",
       "after the samples, also time ring without waits (memory roof) and without loads (dependency "
       "chain)",
       kMeasureFlags, false, [](Options& o, S t) { o.ablations = parse_switch("ablations", t); }},
      {"only", 0, "STEP", "",
       "judge one prompt (PROMPT), or repeat one step: PROMPT:POSITION as the parity table shows "
       "them, or a file of a report's folder failures",
       kParityFlags, false, [](O& o, S t) { parse_only(o, t); }},
      {"faults", 0, "", "",
       "plant every fault of the table: each must fail its checks, controls none", kSelftestFlags,
       false, [](O& o, S t) { o.faults = parse_switch("faults", t); }},
      {"timing", 0, "", "",
       "run the libraries of the faults of timing, T1-T14: each must end as the table says",
       kSelftestFlags, false, [](O& o, S t) { o.timing = parse_switch("timing", t); }},
      {"calibrate", 0, "", "",
       "with --timing: the whole calibration of the clock, at least 60 processes, alone and stored "
       "for later runs on this machine",
       kSelftestFlags, false, [](O& o, S t) { o.calibrate = parse_switch("calibrate", t); }},
      {"libraries", 0, "DIR", "", "folder of those libraries [tests/plugins of the build]",
       kSelftestFlags, false, [](O& o, S t) { o.libraries = t; }},
      {"rows", 0, "LIST", "", "rows of the table instead of all", kSelftestFlags, true,
       [](O& o, S t) { o.rows = parse_word_list("rows", t); }},
      {"resident", 0, "all|one", "",
       "engines open at a time (default: all, where the card and its memory permit it)",
       kJudgeFlags, false,
       [](O& o, S t) {
         o.resident = parse_choice<Resident>("resident", t,
                                             {{"all", Resident::kAll}, {"one", Resident::kOne}});
       }},
      {"in-process", 0, "", "",
       "all engines in one process, and no limits: for debuggers, ncu, compute-sanitizer",
       kCardFlags, false, [](O& o, S t) { o.in_process = parse_switch("in-process", t); }},
      {"list-devices", 0, "", "", "print the devices and end", kMeasureFlags, false,
       [](O& o, S t) { o.list_devices = parse_switch("list-devices", t); }},
      {"dry-run", 0, "", "", "print cases, memory needed and free, and estimated time; run nothing",
       kJudgeFlags, false, [](O& o, S t) { o.dry_run = parse_switch("dry-run", t); }},
      {"output", 'o', "md|json", "md", "format of stdout",
       kDoctorFlags | kAuditFlags | kGateOutFlags | kInspectFlags | kSoakFlags, false,
       [](O& o, S t) {
         parse_choice<int>("output", t, {{"md", 0}, {"json", 0}});
         o.format = t;
       }},
      {"baseline", 0, "NAME", "",
       "compare the run with the report that is kept under this name, as mkbench gate does",
       kMeasureFlags, false, [](O& o, S t) { o.baseline = parse_name("baseline", t); }},
      {"save-baseline", 0, "NAME", "",
       "keep the report under this name where the run passes (~/.local/share/mkbench/baselines)",
       kMeasureFlags, false, [](O& o, S t) { o.save_baseline = parse_name("save-baseline", t); }},
      {"history", 0, "", "",
       "add the finished report to the history (~/.local/share/mkbench/history.sqlite)",
       kMeasureFlags, false, [](O& o, S t) { o.history = parse_switch("history", t); }},
      {"plot", 0, "", "", "draw the history, too (a Python with vl-convert does)", kHistoryFlags,
       false, [](O& o, S t) { o.plot_history = parse_switch("plot", t); }},
      {"label", 0, "TEXT", "", "with add: what to call the version [its commit]", kHistoryFlags,
       false, [](O& o, S t) { o.label = t; }},
      {"out", 0, "DIR", "", "folder of the plots [mkbench-history]", kHistoryFlags, false,
       [](O& o, S t) { o.out = t; }},
      {"max-regress", 0, "X", "",
       "gate: by what share of BASE's time HEAD may take longer [the margin of the clock's "
       "calibration, 0.01 without one]",
       kGateFlags, false,
       [](O& o, S t) {
         o.max_regress = parse_number<double>("max-regress", t, 0, 10, "a share of at least 0");
       }},
      {"fail-on", 0, "regression|inconclusive", "regression",
       "gate: inconclusive = a comparison that cannot be told ends with 5, too", kGateFlags, false,
       [](O& o, S t) {
         o.fails_inconclusive = parse_choice<bool>(
             "fail-on", t, {{"regression", false}, {"inconclusive", true}});
       }},
      {"strict", 0, "", "", "any problem, and any requirement that is not met, is exit code 6",
       kDoctorFlags, false, [](O& o, S t) { o.strict = parse_switch("strict", t); }},
      {"require", 0, "LIST", "",
       "what an offer must have, as gpu=5090,vram=32,ram=32,cores=8,disk=20 (GB of 10^9 bytes; ram "
       "and vram in all, disk free here); exit code 6 where it is not met",
       kDoctorFlags, false, [](O& o, S t) { o.required = parse_required(t); }},
      {"python", 0, "PATH", "",
       "the Python whose torch and transformers are looked at; none = no Python [the one that "
       "mkbench was set up with]",
       kDoctorFlags, false, [](O& o, S t) { o.python = t; }},
      {"engine", 0, "LIST", "", "engines to audit, or paths (.so, .py) [megakernel; host-twin on cpu]",
       kAuditFlags, false, [](O& o, S t) { o.engines = parse_engines(t); }},
      {"python", 0, "PATH", "",
       "the Python that runs engines .py [the one that mkbench was set up with]", kAuditFlags,
       false, [](O& o, S t) { o.python = t; }},
      {"model", 0, "LIST", "", "models, as run takes them [synthetic; tiny,tiny-untied on cpu]",
       kAuditFlags, false, [](O& o, S t) { o.models = parse_word_list("model", t); }},
      {"n-gen", 'n', "N", "32", "tokens of the audited decode", kAuditFlags, false,
       [](O& o, S t) { o.n_gen = {parse_int("n-gen", t, 1)}; }},
      {"n-depth", 'd', "N", "0",
       "KV rows before its first token; tiles are tried in a decode that begins at 0 and is so much "
       "longer",
       kAuditFlags, false, [](O& o, S t) { o.n_depth = {parse_int("n-depth", t, 0)}; }},
      {"seed", 0, "S", "", "of tiles, changes and input ids [random, and printed]", kAuditFlags,
       false, [](O& o, S t) { o.seed = parse_seed(t); }},
      {"tiles", 0, "N", "90",
       "tiles of weights to change in the layers, and as many in the head; 90 miss an engine that "
       "skips 5 % in 1 of 100 runs",
       kAuditFlags, false, [](O& o, S t) { o.tiles = parse_int("tiles", t, 1); }},
      {"tensors", 0, "LIST", "", "draw tiles only where a tensor's name holds one of these texts",
       kAuditFlags, false, [](O& o, S t) { o.tensors = parse_word_list("tensors", t); }},
      {"method", 0, "auto|tiles", "auto",
       "auto = on a GPU the bytes that ncu counts, and tiles where those say nothing", kAuditFlags,
       false,
       [](O& o, S t) {
         o.tiles_only = parse_choice<bool>("method", t, {{"auto", false}, {"tiles", true}});
       }},
      {"out", 0, "DIR", "", "new folder for audit.json [none]", kAuditFlags, false,
       [](O& o, S t) { o.out = t; }},
      {"decode-once", 0, "", "", "open each engine, decode once, and say nothing: what ncu runs",
       kAuditFlags, true, [](O& o, S t) { o.decode_once = parse_switch("decode-once", t); }},
      {"tool", 0, "nsys|ncu", "",
       "nsys = where the time of all blocks goes; ncu = what limits the launch of one block",
       kProfileFlags, false,
       [](O& o, S t) {
         o.tool = parse_choice<ProfileTool>(
             "tool", t, {{"nsys", ProfileTool::kNsys}, {"ncu", ProfileTool::kNcu}});
       }},
      {"kernel", 0, "NAME", "",
       "with ncu, for an engine that launches many: the kernel, by its name without arguments, or "
       "regex:EXPRESSION [any]",
       kProfileFlags, false, [](O& o, S t) { o.kernel = t; }},
      {"launch", 0, "N", "0", "with ncu: which launch of the block, of those of --kernel",
       kProfileFlags, false, [](O& o, S t) { o.launch = parse_int("launch", t, 0); }},
      {"timeline", 0, "", "",
       "instead of a tool: what each block does inside the kernel, recorded by the kernel itself",
       kProfileFlags, false, [](O& o, S t) { o.timeline = parse_switch("timeline", t); }},
      {"print", 0, "", "", "print the tool's command, and run nothing", kProfileFlags, false,
       [](O& o, S t) { o.print_command = parse_switch("print", t); }},
      {"engine", 0, "LIST", "",
       "engines, baselines too, or paths (.so, .py), one after another [megakernel; host-twin on "
       "cpu]",
       kProfileFlags, false,
       [](O& o, S t) { o.engines = parse_engines(t, kCandidate | kYardstick); }},
      {"n-gen", 'n', "L", "16", "tokens of a block", kProfileFlags, false,
       [](O& o, S t) { o.n_gen = parse_int_list("n-gen", t, 1); }},
      {"blocks", 0, "N", "",
       "blocks that nsys records; with --timeline decodes to compare with recorded ones [1; 5 with "
       "--timeline]",
       kProfileFlags, false,
       [](O& o, S t) { o.blocks = parse_int("blocks", t, 1); }},
      {"warmup", 0, "N", "1", "decodes before the first block, which are not recorded",
       kProfileFlags, false, [](O& o, S t) { o.warmup = parse_int("warmup", t, 0); }},
      {"nvtx", 0, "block|token", "block",
       "ranges of blocks, or of tokens too; token decodes one token a call, and is for engines that "
       "launch for each token",
       kProfileFlags, false,
       [](O& o, S t) {
         o.token_ranges = parse_choice<bool>("nvtx", t, {{"block", false}, {"token", true}});
       }},
      {"engine", 0, "LIST", "", "the engine to soak, or a path (.so, .py) [megakernel; host-twin on cpu]",
       kSoakFlags, false, [](O& o, S t) { o.engines = parse_engines(t); }},
      {"model", 0, "LIST", "", "the model, as run takes it [synthetic:cut; tiny on cpu]", kSoakFlags,
       false, [](O& o, S t) { o.models = parse_word_list("model", t); }},
      {"seed", 0, "S", "1", "of all steps: the same seed gives the same steps", kSoakFlags, false,
       [](O& o, S t) { o.seed = parse_seed(t); }},
      {"context", 0, "N", "", "positions of the KV cache, which steps fill to the end [4096; 1024 on cpu]",
       kSoakFlags, false, [](O& o, S t) { o.soak_context = parse_int("context", t, kLeastSoakContext); }},
      {"launches", 0, "N", "", "launches to repeat to the bit [100000; 1000 on cpu]", kSoakFlags,
       false, [](O& o, S t) { o.soak_launches = parse_count("launches", t, 1); }},
      {"tokens", 0, "N", "", "tokens to check, where a truth is known [1000000; 10000 on cpu]",
       kSoakFlags, false, [](O& o, S t) { o.soak_tokens = parse_count("tokens", t, 1); }},
      {"minutes", 0, "M", "10", "after so many minutes it ends; INCOMPLETE where it has not reached its numbers",
       kSoakFlags, false,
       [](O& o, S t) {
         o.soak_minutes = parse_number<double>("minutes", t, 0.01, 1e5, "a number of minutes of at least 0.01");
       }},
      {"all-minutes", 0, "", "", "take all of --minutes, also where the numbers are reached before",
       kSoakFlags, false, [](O& o, S t) { o.soak_all_minutes = parse_switch("all-minutes", t); }},
      {"step", 0, "N", "", "repeat this step alone, as a failure names it", kSoakFlags, false,
       [](O& o, S t) { o.soak_step = parse_count("step", t, 0); }},
      {"out", 0, "DIR", "", "new folder of soak.json and soak.md [mkbench-report-<time>]", kSoakFlags,
       false, [](O& o, S t) { o.out = t; }},
      {"resume", 0, "DIR", "",
       "go on with the soak of this folder; refused where its engine, model, seed or build is another",
       kSoakFlags, false, [](O& o, S t) { o.resume = t; }},
      {"plant-fault", 0, "NAME", "", "a fault in the engine that the soak must see", kSoakFlags, true,
       [](O& o, S t) { o.fault = parse_fault(t); }},
      {"on", 0, "local|slurm|workflow", "local",
       "local = one job for each card of this machine; slurm = an array of jobs with a card each; "
       "workflow = print a matrix of GitHub's workflows, and run nothing",
       kFleetFlags, false,
       [](O& o, S t) {
         parse_choice<int>("on", t, {{"local", 0}, {"slurm", 0}, {"workflow", 0}});
         o.fleet_on = t;
       }},
      {"out", 0, "DIR", "", "new folder of the fleet, which all nodes see [mkbench-fleet-<time>]",
       kFleetFlags, false, [](O& o, S t) { o.out = t; }},
      {"resume", 0, "DIR", "",
       "go on with the fleet of this folder, by its own plan: finished cells stand", kFleetFlags,
       false, [](O& o, S t) { o.resume = t; }},
      {"dry-run", 0, "", "", "check the plan and print its cells; run nothing", kFleetFlags, false,
       [](O& o, S t) { o.dry_run = parse_switch("dry-run", t); }},
      {"values", 0, "", "",
       "read every weight, too: NaN, Inf, tensors of zeros, hashes [headers alone, and the bytes of "
       "a tied head]",
       kInspectFlags, false, [](O& o, S t) { o.read_values = parse_switch("values", t); }},
      {"quiet", 'q', "", "", "no progress", kTalkFlags, false,
       [](O& o, S t) { o.quiet = parse_switch("quiet", t); }},
      {"verbose", 'v', "", "", "more progress", kTalkFlags, false,
       [](O& o, S t) { o.verbose = parse_switch("verbose", t); }},
      {"plant-fault", 0, "NAME", "", "a fault in the candidates that the gate must see",
       kJudgeFlags, true, [](O& o, S t) { o.fault = parse_fault(t); }},
  };
  return table;
}

}  // namespace mkbench
