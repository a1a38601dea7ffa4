# The lists of tests that need neither; replaces tests/CMakeLists.txt in the scratch copy.
mkbench_library(mkbench_test_main SOURCES support/main.cpp support/skipped.cpp PUBLIC Catch2::Catch2)
foreach(room references wire measure report judge flow host hosts archive cli)
  include(${room}/tests.cmake)
endforeach()
