# Helpers that give every target the same language level, warnings and include root.

# A spill or local memory in a kernel is a build failure: a performance test that needs no GPU. CI does not have CUDA
# 12's front end, so with CUDA 12 a spill is a warning unless MKBENCH_WERROR is on.
set(mkbench_cuda_errors -Werror=all-warnings)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13 AND NOT MKBENCH_WERROR)
  set(mkbench_cuda_errors "")
endif()

add_library(mkbench_options INTERFACE)
target_include_directories(mkbench_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(mkbench_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:${MKBENCH_WERROR}>>:-Werror>
  # No function is interposed at run time, so position-independent code may be inlined too.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>
  # GCC 12 warns of its own std::string operator+ (GCC bug 105651).
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-warn-spills,-warn-lmem-usage ${mkbench_cuda_errors} -Xcompiler=-Wall,-Wextra>)
if(MKBENCH_SANITIZE)
  # GCC reports uninitialised values that do not exist once the sanitizers have rewritten the code.
  target_compile_options(mkbench_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=all>"
    "$<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>"
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>"
    # GCC has no such check, and Clang 14 cannot compile coroutines with it.
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=function>")
  target_link_options(mkbench_options INTERFACE -fsanitize=address,undefined)
endif()
if(MKBENCH_FUZZ)
  target_compile_options(mkbench_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link>")
endif()

# Most host code computes little: with -O1, and with headers that the target `owner` precompiles, it compiles in less
# than half of the time (GCC 12: 5.4 s became 2.1). Under sanitizers -O0, because the code that they add takes long to
# optimise (a file of tests: 26 s became 16).
function(mkbench_compile_quickly name owner)
  target_compile_options(${name} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:RelWithDebInfo>>:-O0>)
  # At -O1 GCC 12 warns of overflows inside its own std::string operator+.
  target_compile_options(${name} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-stringop-overflow>")
  target_link_libraries(${name} PRIVATE fmt::fmt)
  if(NOT name STREQUAL owner)
    target_precompile_headers(${name} REUSE_FROM ${owner})
  endif()
endfunction()

# mkbench_optimize(files ...): optimises files that compute, or are timed, in a library that is compiled quickly.
function(mkbench_optimize)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# mkbench_library(name [OPTIMIZED] SOURCES ... [PUBLIC libs...] [PRIVATE libs...]): OPTIMIZED, a library that
# computes or is timed, keeps the flags of the build type.
function(mkbench_library name)
  cmake_parse_arguments(ARG "OPTIMIZED" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  list(FILTER ARG_SOURCES INCLUDE REGEX "\\.cu$")
  set_property(SOURCE ${ARG_SOURCES} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${name} PUBLIC mkbench_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  # In all libraries, because they share precompiled headers, and shared libraries of the tests link some of them.
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(NOT ARG_OPTIMIZED)
    mkbench_compile_quickly(${name} mkbench_base)
  endif()
endfunction()

# mkbench_engine(name library host): the library defines <name>_maker (references/engine_maker.h); the program
# mkbench-host-<host> finds it.
function(mkbench_engine name library host)
  set_property(GLOBAL APPEND PROPERTY mkbench_${host}_engines ${name})
  set_property(GLOBAL APPEND PROPERTY mkbench_${host}_libraries ${library})
endfunction()

# A test's TIMEOUT is many times what it takes on an idle machine; a slow or busy one gets this many times as long.
set(mkbench_patience 3)

# mkbench_test(name LABEL host|gpu LIBS ... [SOURCES ...] [TIMEOUT s] [THREADS n] [SLOW] [WAITS]): one executable per file
# <name>.cpp beside the calling CMakeLists.txt. Exit code 77 of the executable means skipped. THREADS: how many cores
# the test keeps busy, for `ctest -j`; a test of the GPU runs alone. SLOW: cases tagged [.][slow] become the test
# <name>_slow, which runs in .ci/long and when it is named. WAITS: the test waits by the wall clock for processes that
# hang or are stopped; it gets the label `waits` in place of `light`, whose tests must not wait.
function(mkbench_test name)
  cmake_parse_arguments(ARG "SLOW;WAITS" "LABEL;TIMEOUT;THREADS" "LIBS;SOURCES" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES ${name}.cpp)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_THREADS)
    set(ARG_THREADS 1)
  endif()
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${mkbench_patience}")
  list(TRANSFORM ARG_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
  string(COMPARE EQUAL ${ARG_LABEL} gpu alone)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE mkbench_options mkbench_test_main ${ARG_LIBS})
  mkbench_compile_quickly(${name} mkbench_test_main)
  set_property(TARGET ${name} PROPERTY UNITY_BUILD ${MKBENCH_BATCHES})
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} SKIP_RETURN_CODE 77 TIMEOUT ${ARG_TIMEOUT}
    PROCESSORS ${ARG_THREADS} RUN_SERIAL ${alone})
  if(ARG_SLOW)
    add_test(NAME ${name}_slow COMMAND ${name} [slow] WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}_slow PROPERTIES LABELS "${ARG_LABEL};slow" TIMEOUT 900 RUN_SERIAL TRUE)
  endif()
  set_property(GLOBAL APPEND PROPERTY mkbench_${ARG_LABEL}_tests ${name})
  if(ARG_WAITS)
    set_property(GLOBAL APPEND PROPERTY mkbench_waiting_tests ${name})
  endif()
endfunction()

# mkbench_python_test(name [TIMEOUT s] [LABEL host|gpu] [CLASSES] [SLOW CLASS ...] [ENVIRONMENT NAME=VALUE ...]):
# <name>.py, a unittest file beside the calling CMakeLists.txt, run with the Python that has torch. CLASSES: each class
# whose name does not end in Test becomes a CTest test, name.Class, so that the classes of a long file run in parallel.
# SLOW: classes that scripts/test.sh runs only with -L slow, as .ci/long does.
function(mkbench_python_test name)
  cmake_parse_arguments(ARG "CLASSES" "TIMEOUT;LABEL" "ENVIRONMENT;SLOW" TIMEOUT 60 LABEL host ${ARGN})
  math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * ${mkbench_patience}")
  set(file ${CMAKE_CURRENT_LIST_DIR}/${name}.py)
  set(tests ${name})
  if(ARG_CLASSES)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} tests REGEX "^class [A-Za-z]+\\(")
    list(TRANSFORM tests REPLACE "^class ([A-Za-z]+).*" "${name}.\\1")
    list(FILTER tests EXCLUDE REGEX "Test$")
  endif()
  foreach(test IN LISTS tests)
    string(REGEX REPLACE "^${name}\\.?" "" class ${test})
    add_test(NAME ${test} COMMAND ${MKBENCH_PYTHON} ${file} ${class} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(COMPARE EQUAL ${ARG_LABEL} gpu alone)
    set(labels ${ARG_LABEL})
    if(class AND class IN_LIST ARG_SLOW)
      list(APPEND labels slow)
    endif()
    set_tests_properties(${test} PROPERTIES LABELS "${labels}" SKIP_RETURN_CODE 77 TIMEOUT ${ARG_TIMEOUT}
      RUN_SERIAL ${alone}
      ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1;${ARG_ENVIRONMENT}")
  endforeach()
endfunction()

# Whether a target's link closure holds libtorch or CUDA code, which the sanitizers cannot look into and
# which take most of the build's time.
function(mkbench_needs_device_code target result)
  set(open ${target})
  set(seen)
  while(open)
    list(POP_FRONT open next)
    if(next IN_LIST seen OR NOT TARGET ${next})
      continue()
    endif()
    list(APPEND seen ${next})
    get_target_property(sources ${next} SOURCES)
    if(next STREQUAL "torch" OR sources MATCHES "\\.cu(;|$)")
      set(${result} TRUE PARENT_SCOPE)
      return()
    endif()
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(libraries ${next} ${property})
      if(libraries)
        # A static library lists its private libraries as $<LINK_ONLY:...>.
        list(TRANSFORM libraries REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1")
        list(APPEND open ${libraries})
      endif()
    endforeach()
  endwhile()
  set(${result} FALSE PARENT_SCOPE)
endfunction()

# After all tests are known: the target `light_tests` builds the host tests without libtorch and CUDA code;
# they get the label `light`, or `waits` if they are declared with WAITS. The sanitizers run both.
function(mkbench_finish_tests)
  get_property(tests GLOBAL PROPERTY mkbench_host_tests)
  get_property(waiting GLOBAL PROPERTY mkbench_waiting_tests)
  add_custom_target(light_tests)
  foreach(test IN LISTS tests)
    mkbench_needs_device_code(${test} heavy)
    if(NOT heavy)
      add_dependencies(light_tests ${test})
      set(label light)
      if(test IN_LIST waiting)
        set(label waits)
      endif()
      set_property(TEST ${test} DIRECTORY ${PROJECT_SOURCE_DIR}/tests APPEND PROPERTY LABELS ${label})
    endif()
  endforeach()
endfunction()
