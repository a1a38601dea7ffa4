# Engines from elsewhere: the examples of references/engine_abi.h, whole and broken on purpose.
# mkbench_plugin_example(NAME SOURCE [DEFINITION ...])
function(mkbench_plugin_example name source)
  add_library(${name} MODULE plugins/${source})
  target_link_libraries(${name} PRIVATE mkbench_options)
  target_compile_definitions(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so"
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/plugins)
  set_property(GLOBAL APPEND PROPERTY mkbench_plugin_examples ${name})
endfunction()

# mkbench_plugin_faults(NAME SOURCE FAULT ...): NAME_FAULT is built with NAIVE_FAULT=kFault.
function(mkbench_plugin_faults name source)
  foreach(fault IN LISTS ARGN)
    string(SUBSTRING ${fault} 0 1 first)
    string(SUBSTRING ${fault} 1 -1 rest)
    string(TOUPPER ${first} first)
    mkbench_plugin_example(${name}_${fault} ${source} NAIVE_FAULT=k${first}${rest})
  endforeach()
endfunction()

mkbench_plugin_example(naive_cpu naive_cpu.cpp)
mkbench_plugin_example(naive_cpu_bare naive_cpu.cpp NAIVE_BARE=1)
mkbench_plugin_example(naive_cpu_narrow naive_cpu.cpp NAIVE_MAX_CONTEXT=100)
mkbench_plugin_example(naive_cpu_ids naive_cpu.cpp NAIVE_BARE=1 NAIVE_CAN=0)
mkbench_plugin_faults(naive_cpu naive_cpu.cpp
  theta vocab cache hang crash short overrun nan overwrite fails stateful pending rewind length deep unnormed)
mkbench_plugin_example(misbehaving misbehaving.cpp)
mkbench_plugin_example(step_cpu step_cpu.cpp)
mkbench_plugin_example(coarse_cpu coarse_cpu.cpp)
mkbench_plugin_example(buggy_cpu buggy_cpu.cpp)
mkbench_plugin_example(gpt2_cpu gpt2_cpu.cpp)
mkbench_plugin_example(gpt2_cpu_epsilon gpt2_cpu.cpp GPT2_EPSILON=1e-6f)
target_link_libraries(misbehaving PRIVATE Threads::Threads)
# It takes no forced ids, so that each of them is a late id.
target_compile_definitions(naive_cpu_pending PRIVATE NAIVE_CAN=MKBENCH_CAN_LOGITS|MKBENCH_CAN_LATE_ID)
mkbench_plugin_example(seldom seldom.cpp)
mkbench_plugin_example(closed_form closed_form.cpp)
target_link_libraries(closed_form PRIVATE mkbench_references)
foreach(library misbehaving seldom closed_form)
  target_compile_options(${library} PRIVATE -Wno-subobject-linkage)  # they include naive_cpu.cpp
endforeach()
foreach(reason symbol null version size name function precision device open environment engine)
  string(TOUPPER ${reason} word)
  mkbench_plugin_example(refused_${reason} refused.cpp REFUSED_${word})
endforeach()
mkbench_plugin_example(counting counting.c)
mkbench_plugin_example(lesser lesser.cpp EXPORTED_MAKER=lesser_maker EXPORTED_CUDA=0)
target_sources(lesser PRIVATE ${PROJECT_SOURCE_DIR}/kernels/exported/library.cpp)
target_link_libraries(lesser PRIVATE mkbench_references)
# For several cards one PTX, which each driver compiles, instead of machine code for each in five libraries.
list(LENGTH MKBENCH_CUDA_ARCHITECTURES mkbench_architecture_count)
if(mkbench_architecture_count GREATER 1)
  set(CMAKE_CUDA_ARCHITECTURES 80-virtual)
endif()
mkbench_plugin_example(naive_cuda naive_cuda.cu)
mkbench_plugin_example(step_cuda step_cuda.cu)
mkbench_plugin_example(buggy_cuda buggy_cuda.cu)
mkbench_plugin_example(naive_cuda_ids naive_cuda.cu NAIVE_CAN=0)
mkbench_plugin_example(one_launch_claim naive_cuda.cu
  NAIVE_CAN=MKBENCH_CAN_LOGITS|MKBENCH_CAN_FORCED|MKBENCH_ONE_LAUNCH)
mkbench_plugin_faults(naive_cuda naive_cuda.cu theta vocab overrun)
foreach(what context thread spinning)
  string(TOUPPER ${what} word)
  mkbench_plugin_example(left_${what} left_behind.cu LEFT_${word})
endforeach()
set(CMAKE_CUDA_ARCHITECTURES ${MKBENCH_CUDA_ARCHITECTURES})
get_property(mkbench_plugin_examples GLOBAL PROPERTY mkbench_plugin_examples)

mkbench_test(test_plugin_engine LABEL host LIBS mkbench_plugin SOURCES test_plugin_engine.cpp)
target_compile_definitions(test_plugin_engine PRIVATE
  MKBENCH_PLUGINS="${CMAKE_CURRENT_BINARY_DIR}/plugins")
add_dependencies(test_plugin_engine ${mkbench_plugin_examples})

mkbench_test(test_plugin_optional LABEL host LIBS mkbench_plugin)
target_compile_definitions(test_plugin_optional PRIVATE
  MKBENCH_PLUGINS="${CMAKE_CURRENT_BINARY_DIR}/plugins")
add_dependencies(test_plugin_optional ${mkbench_plugin_examples})

mkbench_test(test_exported LABEL host LIBS mkbench_plugin mkbench_host_twin)
target_compile_definitions(test_exported PRIVATE
  MKBENCH_PLUGINS="${CMAKE_CURRENT_BINARY_DIR}/plugins"
  MKBENCH_ENGINES="${PROJECT_BINARY_DIR}/engines")
get_property(mkbench_exported_engines GLOBAL PROPERTY mkbench_exported_engines)
add_dependencies(test_exported lesser ${mkbench_exported_engines})

mkbench_test(test_plugin_abi LABEL host LIBS mkbench_plugin)
target_compile_definitions(test_plugin_abi PRIVATE
  MKBENCH_PLUGINS="${CMAKE_CURRENT_BINARY_DIR}/plugins")
add_dependencies(test_plugin_abi ${mkbench_plugin_examples})

mkbench_test(test_plugin_outline LABEL host LIBS mkbench_plugin mkbench_input_cases)
target_compile_definitions(test_plugin_outline PRIVATE
  MKBENCH_PLUGINS="${CMAKE_CURRENT_BINARY_DIR}/plugins")
add_dependencies(test_plugin_outline ${mkbench_plugin_examples})

mkbench_test(test_plugin_gpu LABEL gpu LIBS mkbench_plugin)
target_compile_definitions(test_plugin_gpu PRIVATE
  MKBENCH_PLUGINS="${CMAKE_CURRENT_BINARY_DIR}/plugins")
add_dependencies(test_plugin_gpu ${mkbench_plugin_examples})

# The real binary with each of them; and the README's way to a first verdict.
set(mkbench_plugin_environment
  "BINARY_UNDER_TEST=$<TARGET_FILE:mkbench>" "PLUGINS=${CMAKE_CURRENT_BINARY_DIR}/plugins" "CXX=${CMAKE_CXX_COMPILER}"
  "CUDACXX=${CMAKE_CUDA_COMPILER}")
mkbench_python_test(test_plugins CLASSES SLOW Broken KnownAnswers TIMEOUT 400 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_plugins_gpu LABEL gpu TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_readme_plugin TIMEOUT 200 ENVIRONMENT ${mkbench_plugin_environment})
mkbench_python_test(test_bugs CLASSES TIMEOUT 300 ENVIRONMENT ${mkbench_plugin_environment})
