# The CUDA Toolkit, cuDNN and NCCL. cuDNN's C++ front end is headers only and optional: without it, or without cuDNN,
# attention is our own kernels in bfloat16, too.
if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # 90: with PTX, for what comes later
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(CMAKE_VERSION VERSION_LESS 3.26)
    # It does not know yet that nvcc has C++20.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)

find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${PROJECT_SOURCE_DIR}/build-deps/cudnn_frontend/include)
if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY AND CUDNN_FRONTEND_INCLUDE_DIR)
    set(INFINI_HAS_CUDNN ON)
    message(STATUS "attention in bfloat16: cuDNN")
else()
    set(INFINI_HAS_CUDNN OFF)
    message(STATUS "attention in bfloat16: our own kernels (cuDNN or its front end was not found)")
endif()

if(INFINI_USE_NCCL)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(NOT NCCL_INCLUDE_DIR OR NOT NCCL_LIBRARY)
        message(FATAL_ERROR "INFINI_USE_NCCL=ON: nccl.h or libnccl was not found; install libnccl-dev or set NCCL_INCLUDE_DIR and NCCL_LIBRARY")
    endif()
endif()
