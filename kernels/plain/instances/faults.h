// What the host sees of instances/faults.cu.
#pragma once

namespace mkbench::plain {

const void* faulty_kernel();
// The device variable of type int that holds the PlantedFault.
const void* planted_fault_symbol();

}  // namespace mkbench::plain
