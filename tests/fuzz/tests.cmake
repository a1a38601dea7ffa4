# Fuzz targets: the readers of what strangers write. With MKBENCH_FUZZ (clang) each is a libFuzzer program; in other builds
# it runs the seeds and the committed corpus, as a test, and mutates them for as long as it is told.
mkbench_library(mkbench_fuzz_input OPTIMIZED SOURCES fuzz/input.cpp fuzz/json_mutator.cpp
  PUBLIC mkbench_base PRIVATE fmt::fmt nlohmann_json::nlohmann_json)

add_executable(fuzz_seeds fuzz/seeds.cpp)
target_link_libraries(fuzz_seeds PRIVATE mkbench_options mkbench_input_cases mkbench_wire mkbench_cli)
set(fuzz_seeds_dir ${CMAKE_CURRENT_BINARY_DIR}/fuzz-seeds)
# The committed corpus, unpacked anew where an archive has changed.
set(fuzz_corpus_dir ${CMAKE_CURRENT_BINARY_DIR}/fuzz-corpus)
add_custom_target(fuzz_corpus ALL)
if(NOT MKBENCH_FUZZ)
  add_library(mkbench_fuzz_main OBJECT fuzz/standalone.cpp)
  target_link_libraries(mkbench_fuzz_main PRIVATE mkbench_options mkbench_fuzz_input fmt::fmt)
  add_test(NAME fuzz_seeds COMMAND fuzz_seeds ${fuzz_seeds_dir})
  set_tests_properties(fuzz_seeds PROPERTIES LABELS host FIXTURES_SETUP fuzz_seeds TIMEOUT 120)
endif()

# mkbench_fuzz_target(name library [JSON bytes]): JSON: the input has a JSON document behind so many bytes.
function(mkbench_fuzz_target name library)
  cmake_parse_arguments(ARG "" "JSON" "" ${ARGN})
  set(target fuzz_${name})
  add_executable(${target} fuzz/${name}.cpp)
  target_link_libraries(${target} PRIVATE mkbench_options mkbench_fuzz_input ${library})
  set(archive ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name}.tar.xz)
  set(unpacked ${fuzz_corpus_dir}/${name})
  add_custom_command(OUTPUT ${unpacked}.stamp DEPENDS ${archive}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${unpacked}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${unpacked}
    COMMAND ${CMAKE_COMMAND} -E chdir ${unpacked} ${CMAKE_COMMAND} -E tar xf ${archive}
    COMMAND ${CMAKE_COMMAND} -E touch ${unpacked}.stamp
    VERBATIM)
  add_custom_target(${target}_corpus DEPENDS ${unpacked}.stamp)
  add_dependencies(fuzz_corpus ${target}_corpus)
  add_dependencies(${target} ${target}_corpus)
  if(DEFINED ARG_JSON)
    target_sources(${target} PRIVATE fuzz/json_target.cpp)
    target_compile_definitions(${target} PRIVATE MKBENCH_FUZZ_PREFIX=${ARG_JSON})
  endif()
  if(MKBENCH_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${target})
  else()
    target_link_libraries(${target} PRIVATE mkbench_fuzz_main)
    add_test(NAME ${target}
      COMMAND ${target} ${unpacked} ${fuzz_seeds_dir}/${name})
    set_tests_properties(${target} PROPERTIES LABELS host FIXTURES_REQUIRED fuzz_seeds TIMEOUT 120)
  endif()
endfunction()

if(MKBENCH_FUZZ)
  add_custom_target(fuzzers DEPENDS fuzz_seeds)
endif()
mkbench_fuzz_target(safetensors mkbench_references JSON 8)
mkbench_fuzz_target(config mkbench_references JSON 0)
mkbench_fuzz_target(reference mkbench_references JSON 0)
mkbench_fuzz_target(wire mkbench_wire JSON 4)
mkbench_fuzz_target(report mkbench_cli JSON 0)
