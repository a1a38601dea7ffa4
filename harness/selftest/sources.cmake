# The fault corpus: table, lanes, probes. No torch and no CUDA; CUDA engines come from outside.
mkbench_library(mkbench_selftest
  SOURCES
    selftest/fault_rows.cpp
    selftest/fault_table.cpp
    selftest/faulty_engine.cpp
    selftest/gate_faults.cpp
    selftest/lanes.cpp
    selftest/probes.cpp
    selftest/recorded_engine.cpp
  PUBLIC mkbench_judge
  PRIVATE mkbench_host_twin fmt::fmt)

mkbench_library(mkbench_selftest_cuda
  SOURCES
    selftest/cuda_engines.cpp
  PUBLIC mkbench_selftest
  PRIVATE mkbench_ring mkbench_plain_faults)
