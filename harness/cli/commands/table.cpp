// The table of subcommands. Each has a file in this folder with its flags and its row.
#include "harness/cli/command_line.h"

namespace mkbench {

CommandRow run_row();
CommandRow parity_row();
CommandRow profile_row();
CommandRow fetch_row();
CommandRow inspect_row();
CommandRow new_engine_row();
CommandRow tune_row();
CommandRow audit_row();
CommandRow soak_row();
CommandRow selftest_row();
CommandRow doctor_row();
CommandRow report_row();
CommandRow verify_row();
CommandRow gate_row();
CommandRow compare_row();
CommandRow history_row();
CommandRow fleet_row();
CommandRow list_row();

const std::vector<CommandRow>& command_rows() {
  static const std::vector<CommandRow> rows = {
      run_row(),    parity_row(), profile_row(), fetch_row(),    inspect_row(), new_engine_row(),
      tune_row(),   audit_row(),  soak_row(),    selftest_row(), doctor_row(),  report_row(),
      verify_row(), gate_row(),   compare_row(), history_row(),  fleet_row(),   list_row()};
  return rows;
}

}  // namespace mkbench
