// One layer of a timeline as a picture in the report.
#pragma once

#include <string>

#include "references/timeline.h"

namespace mkbench {

// SVG of the layer of median length (of the step, if the engine has no layers): a row per block, time
// to the right, colours by kind. Below them, a row per track of the block that most often ends a
// phase last. Empty if no span has a known step.
std::string timeline_svg(const Timeline& timeline, int steps, const std::string& title);

}  // namespace mkbench
