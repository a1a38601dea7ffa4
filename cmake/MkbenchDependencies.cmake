# Every package that mkbench uses. Nothing is vendored, nothing is fetched.
find_package(CUDAToolkit 12.8 REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(benchmark REQUIRED)
find_package(Catch2 REQUIRED)
# Boost.Math alone, which is header-only: statistics.cpp uses its distributions.
find_path(MKBENCH_BOOST_INCLUDE boost/math/distributions/students_t.hpp REQUIRED DOC "The folder of Boost's headers")

# The Python that has torch: libtorch is in its site-packages, and tests and plots run with it.
find_program(MKBENCH_PYTHON NAMES python3 REQUIRED DOC "Python with torch and numpy")
if(NOT Torch_DIR)
  execute_process(
    COMMAND ${MKBENCH_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/find_torch.py
    OUTPUT_VARIABLE mkbench_torch_facts)
  if(mkbench_torch_facts MATCHES "cmake=([^\n]+)")
    set(Torch_DIR ${CMAKE_MATCH_1} CACHE PATH "The folder of TorchConfig.cmake")
  endif()
endif()

# find_package(Torch) asks for a GPU, on a reconfigure adds flags for architectures that nvcc 13 no
# longer knows, and switches CMAKE_CUDA_ARCHITECTURES off, so that nvcc builds for its oldest default.
set(mkbench_saved_cuda_flags "${CMAKE_CUDA_FLAGS}")
set(ENV{TORCH_CUDA_ARCH_LIST} "9.0a")
find_package(Torch REQUIRED)
set(CMAKE_CUDA_FLAGS "${mkbench_saved_cuda_flags}")
set(CMAKE_CUDA_ARCHITECTURES ${MKBENCH_CUDA_ARCHITECTURES})

# PyPI's CUDA packages beside torch: one folder for all of CUDA 13, one folder per package for CUDA 12.
set(mkbench_wheels ${Torch_DIR}/../../../../nvidia)

# nvml.h: in the toolkit, or in the wheel nvidia-nvml-dev. Copied alone, so that no second set of CUDA
# headers gets on the include path.
find_path(MKBENCH_NVML_INCLUDE nvml.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${mkbench_wheels}/cu13/include ${mkbench_wheels}/nvml_dev/include)
if(NOT MKBENCH_NVML_INCLUDE)
  message(FATAL_ERROR "nvml.h is neither in the CUDA toolkit nor beside torch: "
    "install cuda-nvml-dev, or the wheel nvidia-nvml-dev (CUDA 12: nvidia-nvml-dev-cu12) into ${MKBENCH_PYTHON}")
endif()
configure_file(${MKBENCH_NVML_INCLUDE}/nvml.h ${PROJECT_BINARY_DIR}/nvml/nvml.h COPYONLY)
include_directories(SYSTEM ${PROJECT_BINARY_DIR}/nvml)

# cupti.h: in the toolkit, in its extras, or beside torch. Without it launches are not counted.
find_path(MKBENCH_CUPTI_INCLUDE cupti.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include
        ${mkbench_wheels}/cu13/include ${mkbench_wheels}/cuda_cupti/include)

# torch's CUDA headers include these headers; a toolkit that was installed without CUDA's libraries lacks them.
foreach(header cublas_v2 cusolverDn cusparse)
  find_path(MKBENCH_${header}_INCLUDE ${header}.h NO_DEFAULT_PATH
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ${mkbench_wheels}/cu13/include ${mkbench_wheels}/cublas/include
          ${mkbench_wheels}/cusolver/include ${mkbench_wheels}/cusparse/include)
  if(MKBENCH_${header}_INCLUDE)
    list(APPEND MKBENCH_TORCH_INCLUDES ${MKBENCH_${header}_INCLUDE})
  endif()
endforeach()
