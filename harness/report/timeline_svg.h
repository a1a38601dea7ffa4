// One layer of a timeline as a picture, for those who read the report alone.
#pragma once

#include <string>

#include "references/timeline.h"

namespace mkbench {

// SVG of the layer of median length: a row a block, time to the right, colours by what is done, and below them all
// parts of the block that is last most often. Without layers it shows the step of median length. Empty where the step of no span is known.
std::string timeline_svg(const Timeline& timeline, int steps, const std::string& title);

}  // namespace mkbench
