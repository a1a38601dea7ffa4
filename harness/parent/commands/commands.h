// The commands of mkbench, one file each. Each returns the process's exit code.
#pragma once

#include <string>
#include <vector>

#include "harness/parent/launch.h"
#include "harness/parent/options.h"

namespace mkbench {

// The main job: gate, measure, report. `argv` goes into the report; `do_job` serves --in-process.
int run_command(const Options& options, const std::vector<std::string>& argv, DoJob do_job);
// What the machine has and whether mkbench can use it. Exit 6 with --device cuda where no GPU is
// usable.
int doctor_command(const Options& options);
// Draws plots of reports that are there already.
int plot_command(const Options& options);
// Sweeps the ring megakernel's tuning on a card and prints its row of the table. Exit 6 where ring
// cannot run.
int tune_command(const Options& options);
// Plants the faults of the table in engines and shows which checks see them. Exit 8 unless exactly
// the expected ones do and all controls pass.
int selftest_command(const Options& options);
// Engines, models, devices.
int list_command(const Options& options);

}  // namespace mkbench
