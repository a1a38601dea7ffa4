#pragma once

#include <vector>

namespace mkbench {

// The middle value, or the mean of the two in the middle; 0 without values.
double median(std::vector<double> values);

}  // namespace mkbench
