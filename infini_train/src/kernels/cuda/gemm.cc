#include "infini_train/src/kernels/cuda/gemm.h"

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "cublasLt.h"
#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/src/core/cuda/cuda_check.h"
#include "infini_train/src/core/cuda/cuda_stream.h"

// cuBLASLt is column-major: it sees each of our matrices transposed, so that it is asked for C^T = op(B)^T op(A)^T. Its
// A is our B, its rows are our columns, and a bias of its rows is one of our columns.

#define INFINI_CUBLAS_CHECK(call)                            \
    do {                                                     \
        const cublasStatus_t infini_cublas_status = (call);  \
        if (infini_cublas_status != CUBLAS_STATUS_SUCCESS) { \
            ThrowCublasError(#call, infini_cublas_status);   \
        }                                                    \
    } while (false)

namespace infini_train::kernels::cuda {
namespace {

// For the partial sums of products that are split along k: the parts of a weight gradient of 4096 x 4096 fit once, of
// the smaller ones, which need splitting to fill the GPU, many times.
constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr uintptr_t kMaxAlignment = 16;  // no algorithm asks for more; a larger one would tell equal tensors apart

[[noreturn]] void ThrowCublasError(const char* call, cublasStatus_t status) {
    throw Error({.where = "cuBLASLt",
                 .what = std::string(cublasLtGetStatusString(status)) + " in " + call,
                 .kind = Error::Kind::kRuntime});
}

cudaDataType_t CudaTypeOf(DataType dtype) {
    return dtype == DataType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
}

/// The largest power of two, up to kMaxAlignment, that divides an address and the bytes between two rows.
uint32_t AlignmentOf(const void* data, int64_t columns, DataType dtype) {
    const uintptr_t bits =
        reinterpret_cast<uintptr_t>(data) | (static_cast<uintptr_t>(columns) * SizeOf(dtype)) | kMaxAlignment;
    return static_cast<uint32_t>(bits & (~bits + 1));
}

cublasLtEpilogue_t EpilogueOf(const GemmOperands& operands) {
    if (operands.pre != nullptr) {
        return CUBLASLT_EPILOGUE_DGELU;
    }
    if (operands.pre_output != nullptr) {
        return operands.bias != nullptr ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    }
    return operands.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// What the library's epilogues need: auxiliary rows of a multiple of 8 elements, and aligned vectors.
bool CanFuse(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands) {
    const bool has_gelu = operands.pre != nullptr || operands.pre_output != nullptr;
    // Its tanh is not said to be better than bfloat16 needs.
    const bool has_dtype = !has_gelu || options.output_dtype == DataType::kBFloat16;
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(operands.bias) | reinterpret_cast<uintptr_t>(operands.pre) |
                                reinterpret_cast<uintptr_t>(operands.pre_output);
    return has_dtype && shape.k > 0 && shape.n % 8 == 0 && addresses % kMaxAlignment == 0;
}

template <typename T>
void Set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    INFINI_CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
}

template <typename T>
void Set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    INFINI_CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

/// How a product is computed. The library says of its structs that they may be kept by value.
struct Plan {
    bool has_algorithm;
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a;  // ours
    cublasLtMatrixLayoutOpaque_t b;
    cublasLtMatrixLayoutOpaque_t c;
    cublasLtMatmulAlgo_t algorithm;
};

/// The library and its plans, for one compute stream.
class GemmState {
 public:
    explicit GemmState(int gpu_index);
    ~GemmState();
    GemmState(const GemmState&) = delete;
    GemmState& operator=(const GemmState&) = delete;

    bool TryRun(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands, cudaStream_t stream);

 private:
    struct Close {
        void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
    };
    // What a plan depends on: sizes, layouts, dtypes, epilogue, alignments.
    using Key = std::array<int64_t, 11>;

    void Make(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands, Plan& plan) const;

    std::unique_ptr<cublasLtContext, Close> handle_;
    void* workspace_ = nullptr;
    std::map<Key, Plan> plans_;
};

GemmState::GemmState(int gpu_index) {
    const infini_train::cuda::DeviceGuard guard(gpu_index);
    cublasLtHandle_t handle = nullptr;
    INFINI_CUBLAS_CHECK(cublasLtCreate(&handle));
    handle_.reset(handle);
    INFINI_CUDA_CHECK(cudaMalloc(&workspace_, kWorkspaceBytes));
}

GemmState::~GemmState() {
    INFINI_CUDA_LOG(cudaFree(workspace_));  // whichever GPU is the thread's
}

void SetPointers(const GemmOperands& operands, Plan& plan) {
    if (operands.bias != nullptr) {
        Set(&plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    if (operands.pre != nullptr) {
        Set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.pre);
    }
    if (operands.pre_output != nullptr) {
        Set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.pre_output);
    }
}

void GemmState::Make(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands,
                     Plan& plan) const {
    // Never CUBLAS_COMPUTE_32F_FAST_TF32, which rounds float32 factors to 10 bits.
    INFINI_CUBLAS_CHECK(cublasLtMatmulDescInit(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, options.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, options.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(operands));
    if (operands.pre != nullptr || operands.pre_output != nullptr) {
        Set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.n);
    }
    SetPointers(operands, plan);  // the heuristic looks at their alignment

    const auto layout = [](cublasLtMatrixLayoutOpaque_t& matrix, DataType dtype, int64_t rows, int64_t columns) {
        INFINI_CUBLAS_CHECK(cublasLtMatrixLayoutInit(&matrix, CudaTypeOf(dtype), static_cast<uint64_t>(columns),
                                                     static_cast<uint64_t>(rows), columns));
    };
    const int64_t columns_of_a = options.transpose_a ? shape.m : shape.k;
    const int64_t columns_of_b = options.transpose_b ? shape.k : shape.n;
    layout(plan.a, options.input_dtype, options.transpose_a ? shape.k : shape.m, columns_of_a);
    layout(plan.b, options.input_dtype, options.transpose_b ? shape.n : shape.k, columns_of_b);
    layout(plan.c, options.output_dtype, shape.m, shape.n);

    cublasLtMatmulPreferenceOpaque_t preference = {};
    INFINI_CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
    Set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
    // Sums that are split along k meet in float32 in the workspace: neither in the output, in the order in which they
    // are done, nor rounded to bfloat16 before.
    Set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        AlignmentOf(operands.b, columns_of_b, options.input_dtype));
    Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        AlignmentOf(operands.a, columns_of_a, options.input_dtype));
    const uint32_t alignment_of_c = AlignmentOf(operands.c, shape.n, options.output_dtype);
    Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of_c);
    Set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of_c);

    // The first that the library names, never the fastest of some that were tried: two ranks must choose the same one,
    // as different ones sum in different orders.
    cublasLtMatmulHeuristicResult_t result = {};
    int num_results = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), &plan.operation, &plan.b, &plan.a, &plan.c, &plan.c, &preference, 1, &result, &num_results);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
        INFINI_CUBLAS_CHECK(status);
    }
    plan.has_algorithm = status == CUBLAS_STATUS_SUCCESS && num_results > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    plan.algorithm = result.algo;
}

bool GemmState::TryRun(const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands,
                       cudaStream_t stream) {
    const Key key = {shape.m,
                     shape.n,
                     shape.k,
                     options.transpose_a,
                     options.transpose_b,
                     static_cast<int64_t>(options.input_dtype),
                     static_cast<int64_t>(options.output_dtype),
                     EpilogueOf(operands),
                     AlignmentOf(operands.a, options.transpose_a ? shape.m : shape.k, options.input_dtype),
                     AlignmentOf(operands.b, options.transpose_b ? shape.k : shape.n, options.input_dtype),
                     AlignmentOf(operands.c, shape.n, options.output_dtype)};
    const auto [entry, is_new] = plans_.try_emplace(key);
    Plan& plan = entry->second;
    if (is_new) {
        Make(shape, options, operands, plan);
    } else {
        SetPointers(operands, plan);
    }
    if (!plan.has_algorithm) {
        return false;
    }
    const float alpha = 1.0f;
    const float beta = options.accumulate ? 1.0f : 0.0f;
    INFINI_CUBLAS_CHECK(cublasLtMatmul(handle_.get(), &plan.operation, &alpha, operands.b, &plan.b, operands.a, &plan.a,
                                       &beta, operands.c, &plan.c, operands.c, &plan.c, &plan.algorithm, workspace_,
                                       kWorkspaceBytes, stream));
    return true;
}

}  // namespace

bool TryGemm(const Device& device, const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands) {
    CHECK(IsFloat(options.input_dtype) && IsFloat(options.output_dtype) &&
          (options.output_dtype == DataType::kFloat32 || options.input_dtype == DataType::kBFloat16))
        << "gemm: " << Name(options.input_dtype) << " to " << Name(options.output_dtype);
    CHECK(!options.accumulate || options.output_dtype == DataType::kFloat32) << "gemm: adds to float32 alone";
    CHECK(operands.pre == nullptr || (operands.bias == nullptr && operands.pre_output == nullptr))
        << "gemm: a gradient with a bias or a gelu";
    if (shape.m == 0 || shape.n == 0) {
        return true;
    }
    if (EpilogueOf(operands) != CUBLASLT_EPILOGUE_DEFAULT && !CanFuse(shape, options, operands)) {
        return false;
    }
    infini_train::cuda::CudaStream& stream = infini_train::cuda::CudaStreamOf(device);
    if (shape.k == 0) {
        if (!options.accumulate) {
            stream.SetZero(operands.c, static_cast<size_t>(shape.m * shape.n) * SizeOf(options.output_dtype));
        }
        return true;
    }
    return stream.Get<GemmState>().TryRun(shape, options, operands, stream.get());
}

void Gemm(const Device& device, const GemmShape& shape, const GemmOptions& options, const GemmOperands& operands) {
    CHECK(EpilogueOf(operands) == CUBLASLT_EPILOGUE_DEFAULT);
    if (!TryGemm(device, shape, options, operands)) {
        throw Error({.where = "cuBLASLt",
                     .what = "no algorithm for a product of " + std::to_string(shape.m) + " x " +
                             std::to_string(shape.n) + " x " + std::to_string(shape.k) + ", " +
                             std::string(Name(options.input_dtype)) + " to " + std::string(Name(options.output_dtype)),
                     .kind = Error::Kind::kRuntime});
    }
}

}  // namespace infini_train::kernels::cuda
