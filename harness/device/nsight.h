// Nsight's two tools, each run around one program: their command lines, reports and errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

enum class ProfileTool { kNsys, kNcu };

struct NsightRun {
  ProfileTool tool = ProfileTool::kNcu;
  std::string program;   // the tool's file
  std::string range;     // the NVTX range, of domain "mkbench", to capture
  std::string output;    // path of the report, without its ending
  std::string kernel{};  // ncu: the kernel's name as --kernel-name takes it; empty for any kernel
  int launch = 0;        // ncu: which launch of `kernel` in the range, from 0 on
};

std::string_view tool_name(ProfileTool tool);
// "Nsight Compute" or "Nsight Systems".
std::string_view product_name(ProfileTool tool);
// The path from find_ncu() or find_nsys().
std::string find_tool(ProfileTool tool);
// The file that the tool writes: `output` with the tool's ending.
std::string report_file(const NsightRun& run);
// The tool and its options. The program that is profiled, and its arguments, follow them.
std::vector<std::string> tool_command(const NsightRun& run);
// The command that opens the report for a person.
std::string open_command(const NsightRun& run);
// The line of the tool's output that explains a failure: its first error, else its last line.
std::string tool_complaint(const std::string& output);
// True where the tool says that this user or machine may not read the card's counters.
bool counters_forbidden(const std::string& output);

}  // namespace mkbench
