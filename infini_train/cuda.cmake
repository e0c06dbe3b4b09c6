# The sources of the CUDA device, by name. What is compiled in registers itself: nothing else asks how this was built.
target_sources(infini_train PRIVATE
    src/comm/local/cuda/add_on_stream.cu
    src/core/cuda/cuda_allocator.cc
    src/core/cuda/cuda_stream.cc
    src/core/cuda/register.cc
    src/kernels/cuda/accumulate.cu
    src/kernels/cuda/add.cu
    src/kernels/cuda/attention.cc
    src/kernels/cuda/attention_cached.cu
    src/kernels/cuda/cast.cu
    src/kernels/cuda/cross_entropy.cu
    src/kernels/cuda/dropout.cu
    src/kernels/cuda/embedding.cu
    src/kernels/cuda/fill.cu
    src/kernels/cuda/flash_attention_backward.cu
    src/kernels/cuda/flash_attention_forward.cu
    src/kernels/cuda/gelu.cu
    src/kernels/cuda/gemm.cc
    src/kernels/cuda/grad_norm.cu
    src/kernels/cuda/layer_norm.cu
    src/kernels/cuda/linear.cc
    src/kernels/cuda/linear_bias.cu
    src/kernels/cuda/loss_total.cu
    src/kernels/cuda/optimizer_step.cu
    src/kernels/cuda/register.cc
    src/kernels/cuda/rms_norm.cu
    src/kernels/cuda/rotary.cu
    src/kernels/cuda/swiglu.cu
)
target_link_libraries(infini_train PRIVATE CUDA::cudart CUDA::cublasLt)
target_include_directories(infini_train SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(infini_train PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall,-Wextra>")
set_target_properties(infini_train PROPERTIES CUDA_SEPARABLE_COMPILATION OFF)

if(INFINI_HAS_CUDNN)
    target_sources(infini_train PRIVATE src/kernels/cuda/cudnn_attention.cc)
    # Its front end is included by this one file, which compiles for a minute, and has warnings of its own.
    set_source_files_properties(src/kernels/cuda/cudnn_attention.cc PROPERTIES INCLUDE_DIRECTORIES "${CUDNN_FRONTEND_INCLUDE_DIR};${CUDNN_INCLUDE_DIR}" COMPILE_OPTIONS "-w")
    target_link_libraries(infini_train PRIVATE ${CUDNN_LIBRARY})
endif()

if(INFINI_USE_NCCL)
    target_sources(infini_train PRIVATE
        src/comm/nccl/link_rounds.cc
        src/comm/nccl/nccl_check.cc
        src/comm/nccl/nccl_communicator.cc
        src/comm/nccl/nccl_failure.cc
        src/comm/nccl/nccl_link.cc
        src/comm/nccl/nccl_process_group.cc
        src/comm/nccl/nccl_watchdog.cc
        src/comm/nccl/nccl_world.cc
        src/comm/nccl/register.cc
    )
    target_link_libraries(infini_train PRIVATE ${NCCL_LIBRARY})
endif()
