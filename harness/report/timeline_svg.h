// One layer of a timeline as a picture in the report.
#pragma once

#include <string>

#include "references/timeline.h"

namespace mkbench {

// SVG of the layer (without layers, the step) of median length: a row per block, time to the right,
// colours by kind; below them, all parts of the block that is most often the last in a phase. Empty
// if no span has a known step.
std::string timeline_svg(const Timeline& timeline, int steps, const std::string& title);

}  // namespace mkbench
