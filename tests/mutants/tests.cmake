# The lists of tests that need neither; replaces tests/CMakeLists.txt in the scratch copy.
mkbench_library(mkbench_test_main SOURCES support/main.cpp support/skipped.cpp PUBLIC Catch2::Catch2)
include(references.cmake)
include(truth.cmake)
include(measure.cmake)
include(harness.cmake)
