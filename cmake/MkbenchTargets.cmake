# Helpers that give every target the same language level, warnings and include root.

add_library(mkbench_options INTERFACE)
target_include_directories(mkbench_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(mkbench_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${MKBENCH_WERROR}>>:-Werror>
  # A spill or local memory in a kernel is a build failure: a performance test that needs no GPU.
  $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-warn-spills,-warn-lmem-usage -Werror=all-warnings -Xcompiler=-Wall,-Wextra>)
if(MKBENCH_SANITIZE)
  target_compile_options(mkbench_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-omit-frame-pointer>)
  target_link_options(mkbench_options INTERFACE -fsanitize=address,undefined)
endif()

# mkbench_library(name SOURCES ... [PUBLIC libs...] [PRIVATE libs...])
function(mkbench_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC mkbench_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# mkbench_test(name LABEL host|gpu LIBS ... [SOURCES ...] [TIMEOUT s]): one executable per file tests/<name>.cpp.
# Exit code 77 of a test executable means skipped.
function(mkbench_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "LIBS;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${name}.cpp)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE mkbench_options mkbench_test_main ${ARG_LIBS})
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} SKIP_RETURN_CODE 77 TIMEOUT ${ARG_TIMEOUT})
endfunction()
