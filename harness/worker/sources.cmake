# Command line, parent and worker, and the executable.
set(mkbench_git_dir ${CMAKE_BINARY_DIR}/generated)
add_custom_target(mkbench_git_info
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${mkbench_git_dir}/mkbench_git.h
          -P ${CMAKE_CURRENT_LIST_DIR}/git_info.cmake
  BYPRODUCTS ${mkbench_git_dir}/mkbench_git.h)

# What parses and supervises: no torch and no CUDA in these.
mkbench_library(mkbench_options_parser
  SOURCES options.cpp worker/build_info.cpp
  PUBLIC mkbench_references
  PRIVATE fmt::fmt CLI11::CLI11)
target_include_directories(mkbench_options_parser PRIVATE ${mkbench_git_dir})
target_compile_definitions(mkbench_options_parser PRIVATE
  MKBENCH_VERSION="${PROJECT_VERSION}" MKBENCH_BUILD_TYPE="${CMAKE_BUILD_TYPE}"
  MKBENCH_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
  MKBENCH_CUDA_COMPILER="${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION}")
add_dependencies(mkbench_options_parser mkbench_git_info)
