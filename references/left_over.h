// What a checkpoint may hold beside the parameters of its decoder, and in other places than expected, without another
// result: the rules are those of transformers' from_pretrained(), row by row in docs/dev/loader-rules.md.
#pragma once

#include <string_view>

#include "references/checkpoint_files.h"
#include "references/config_scan.h"

namespace mkbench {

// True for a buffer that an older version wrote (a table of RoPE, a mask) and for a head or block beside the decoder that
// training used. Any other unknown tensor may be a weight that the user means.
bool is_left_over(std::string_view tensor);

// Notes the tensors that are left over, and refuses a table of RoPE that is not the one of rope_theta.
void note_left_over(const Checkpoint& checkpoint, const ConfigScan& scan, ModelFindings& findings);

// Gives tensors their usual names if the family's prefix is missing or there twice, and notes it. Returns true if names
// have changed: then other programs would look for them in vain in this folder.
bool settle_prefix(Checkpoint& checkpoint, const Family& family, ModelFindings& findings);

}  // namespace mkbench
