// Opens ranges as a run of mkbench does, at the level of its one argument: off, block or token.
#include <cstring>

#include "harness/device/nvtx.h"

using namespace mkbench;

int main(int argc, char* argv[]) {
  if (argc != 2) return 2;
  nvtx_level() = std::strcmp(argv[1], "off") == 0     ? NvtxLevel::kOff
                 : std::strcmp(argv[1], "block") == 0 ? NvtxLevel::kBlock
                                                      : NvtxLevel::kToken;
  { const NvtxRange range(kNvtxLoad); }
  { const NvtxRange range(kNvtxUpload); }
  for (int b = 0; b < 2; ++b) {
    const NvtxRange block(kNvtxBlock, b);
    const NvtxRange engine(kNvtxEngine);
    { const NvtxRange prefill(kNvtxPrefill); }
    const NvtxRange decode(kNvtxDecode);
    for (int t = 0; t < 3; ++t) const NvtxRange token(kNvtxToken, t, NvtxLevel::kToken);
    // Switched off while ranges are open: their pops must still come.
    if (b == 1) nvtx_level() = NvtxLevel::kOff;
  }
  return 0;
}
