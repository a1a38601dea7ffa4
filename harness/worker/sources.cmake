# Command line, parent and worker, and the executable.
set(mkbench_git_dir ${CMAKE_BINARY_DIR}/generated)
add_custom_target(mkbench_git_info
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${mkbench_git_dir}/mkbench_git.h
          -P ${CMAKE_CURRENT_LIST_DIR}/git_info.cmake
  BYPRODUCTS ${mkbench_git_dir}/mkbench_git.h)

# What parses and supervises: no torch and no CUDA in these.
mkbench_library(mkbench_options_parser
  SOURCES option_table.cpp option_values.cpp options.cpp worker/build_info.cpp
  PUBLIC mkbench_references fmt::fmt
  PRIVATE CLI11::CLI11)
target_include_directories(mkbench_options_parser PRIVATE ${mkbench_git_dir})
target_compile_definitions(mkbench_options_parser PRIVATE
  MKBENCH_VERSION="${PROJECT_VERSION}" MKBENCH_BUILD_TYPE="${CMAKE_BUILD_TYPE}"
  MKBENCH_COMPILER="${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
  MKBENCH_CUDA_COMPILER="${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION}")
add_dependencies(mkbench_options_parser mkbench_git_info)

# Engines from elsewhere. dlopen() is the worker's alone.
mkbench_library(mkbench_plugin
  SOURCES worker/plugin_checksum.cu worker/plugin_engine.cpp worker/plugin_library.cpp worker/plugin_memory.cpp
  PUBLIC mkbench_references CUDA::cudart
  PRIVATE fmt::fmt ${CMAKE_DL_LIBS})

mkbench_library(mkbench_flow
  SOURCES
    commands/doctor.cpp
    commands/launch.cpp
    commands/list.cpp
    commands/plan.cpp
    commands/plot.cpp
    commands/progress.cpp
    commands/run.cpp
    commands/selftest.cpp
    commands/selftest_worker.cpp
    commands/tune.cpp
    worker/blocks.cpp
    worker/case_flow.cpp
    worker/channel.cpp
    worker/collector.cpp
    worker/gate.cpp
    worker/interrupt.cpp
    worker/machine.cpp
    worker/profile.cpp
    worker/services.cpp
    worker/supervisor.cpp
    worker/text.cpp
    worker/timed_truth.cpp
    worker/trials.cpp
    worker/watch.cpp
    worker/worker_main.cpp
  PUBLIC mkbench_options_parser mkbench_judge
  PRIVATE mkbench_selftest_cuda mkbench_device mkbench_baselines mkbench_plugin mkbench_ring mkbench_plain
          mkbench_host_twin fmt::fmt Threads::Threads)
target_compile_definitions(mkbench_flow PRIVATE
  MKBENCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MKBENCH_BUILD_PYTHON="${MKBENCH_PYTHON}")

add_executable(mkbench main.cpp)
target_link_libraries(mkbench PRIVATE mkbench_flow fmt::fmt)
