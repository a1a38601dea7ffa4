// The table of subcommands: one row each. The code of each subcommand is a file in this folder.
#include "harness/parent/options.h"

namespace mkbench {

int run_command(const Options& options, const Invocation& invocation);
int doctor_command(const Options& options, const Invocation& invocation);
int evidence_command(const Options& options, const Invocation& invocation);
int verify_command(const Options& options, const Invocation& invocation);
int gate_command(const Options& options, const Invocation& invocation);
int history_command(const Options& options, const Invocation& invocation);
int plot_command(const Options& options, const Invocation& invocation);
int fleet_command(const Options& options, const Invocation& invocation);
int fetch_command(const Options& options, const Invocation& invocation);
int inspect_command(const Options& options, const Invocation& invocation);
int new_engine_command(const Options& options, const Invocation& invocation);
int profile_command(const Options& options, const Invocation& invocation);
int audit_command(const Options& options, const Invocation& invocation);
int soak_command(const Options& options, const Invocation& invocation);
int tune_command(const Options& options, const Invocation& invocation);
int selftest_command(const Options& options, const Invocation& invocation);
int list_command(const Options& options, const Invocation& invocation);
void require_plot_arguments(Options& options);
void require_soak_arguments(Options& options);
void require_fleet_arguments(Options& options);
void require_fetch_arguments(Options& options);
void require_inspect_arguments(Options& options);
void require_new_engine_arguments(Options& options);
void require_list_arguments(Options& options);
void require_profile_arguments(Options& options);
void require_gate_arguments(Options& options);
void require_compare_arguments(Options& options);
void require_history_arguments(Options& options);
void require_evidence_arguments(Options& options);
void require_verify_arguments(Options& options);

namespace {

constexpr unsigned kJudging = kJudgeFlags | kDeviceFlags | kCardFlags | kOutFlags | kTalkFlags;

constexpr CommandRow kRows[] = {
    {"run", "judge, measure and compare (the default)", "", kMeasureFlags | kGateFlags | kJudging,
     nullptr, run_command},
    {"parity", "every check of parity, and no clock", "", kParityFlags | kJudging,
     [](Options& o) {
       o.whole_parity = true;
       if (!o.only) return;
       if (o.models.empty() && !o.only->model.empty()) o.models = {o.only->model};
       if (o.engines.empty() && !o.only->engine.empty()) o.engines = {o.only->engine};
     },
     run_command},
    {"profile", "show where one engine's time goes: Nsight around it, or its kernel's own timeline",
     "", kProfileFlags | kDeviceFlags | kCardFlags | kOutFlags | kTalkFlags,
     require_profile_arguments, profile_command},
    {"fetch", "fetch a model of the hub into the local cache", "ORG/NAME[@REVISION]", kTalkFlags,
     require_fetch_arguments, fetch_command},
    {"inspect", "every difference between a model and what this binary can run", "MODEL",
     kInspectFlags | kTalkFlags, require_inspect_arguments, inspect_command},
    {"new-engine", "make a folder with an engine of your own to fill in", "DIR c|cpp|cuda|python",
     kTalkFlags, require_new_engine_arguments, new_engine_command},
    {"tune", "sweep the ring megakernel's tuning on a card", "", kCardFlags | kTalkFlags, nullptr,
     tune_command},
    {"audit", "show whether a decode reads all bytes of the weights", "",
     kAuditFlags | kDeviceFlags | kCardFlags | kTalkFlags, nullptr, audit_command},
    {"soak", "let an engine run for long, and count what failed", "",
     kSoakFlags | kDeviceFlags | kCardFlags | kTalkFlags, require_soak_arguments, soak_command},
    {"evidence", "show that this machine trains on its GPU, or why it does not", "DIR",
     kCardFlags | kTalkFlags, require_evidence_arguments, evidence_command},
    {"selftest", "plant faults, and show which checks see them", "",
     kSelftestFlags | kDeviceFlags | kCardFlags | kTalkFlags, nullptr, selftest_command},
    {"doctor", "what this machine has, and what is missing", "",
     kDeviceFlags | kCardFlags | kDoctorFlags | kTalkFlags, nullptr, doctor_command},
    {"plot", "draw plots of reports", "REPORT...", kPlotFlags | kTalkFlags, require_plot_arguments,
     plot_command},
    {"verify", "compute reports again from their samples", "REPORT...", kTalkFlags,
     require_verify_arguments, verify_command},
    {"gate", "compare an engine's times in two reports: is HEAD slower?", "BASE HEAD",
     kGateFlags | kGateOutFlags | kTalkFlags, require_gate_arguments, gate_command},
    {"compare", "time two builds in one run: is the second one slower?", "BASE HEAD",
     kMeasureFlags | kGateFlags | kJudging, require_compare_arguments, run_command},
    {"history", "results of runs that were added, by card and commit", "[add REPORT...]",
     kHistoryFlags | kTalkFlags, require_history_arguments, history_command},
    {"fleet", "run the cells of a plan on many cards, and tell a card from a kernel",
     "PLAN.toml|merge DIR", kFleetFlags | kTalkFlags, require_fleet_arguments, fleet_command},
    {"list", "engines, models, devices; known errors; where mkbench lies",
     "[engines|models|devices|errors|root]", kTalkFlags, require_list_arguments, list_command},
};

}  // namespace

std::span<const CommandRow> command_rows() { return kRows; }

}  // namespace mkbench
