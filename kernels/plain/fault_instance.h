// Host's view of the device translation unit with fault hooks.
#pragma once

namespace mkbench::plain {

const void* faulty_kernel();
// A device variable of type int that holds the PlantedFault.
const void* planted_fault_symbol();

}  // namespace mkbench::plain
