// Opens ranges as a run of mkbench does, with --nvtx at its one argument: off or block.
#include <string_view>

#include "harness/device/nvtx.h"

using namespace mkbench;

int main(int argc, char* argv[]) {
  if (argc != 2) return 2;
  nvtx_level() = std::string_view(argv[1]) == "off" ? NvtxLevel::kOff : NvtxLevel::kBlock;
  { const NvtxRange range("load"); }
  { const NvtxRange range(block_label("ring", 512, 3)); }
  { const NvtxRange range(block_label("ring", 512, 4)); }
  { const NvtxRange range(block_label("./mine-2.so", 0, 0)); }
  for (int b = 0; b < 2; ++b) {
    const NvtxRange block("block");
    const NvtxRange engine("engine");
    { const NvtxRange prefill("prefill"); }
    const NvtxRange decode("decode");
    // Switched off while ranges are open: their pops must still come.
    if (b == 1) nvtx_level() = NvtxLevel::kOff;
  }
  return 0;
}
