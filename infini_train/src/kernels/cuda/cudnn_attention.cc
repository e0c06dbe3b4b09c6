#include "infini_train/src/kernels/cuda/cudnn_attention.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

// Nothing here is written to JSON, and its JSON library would meet ours.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include "cudnn.h"
#include "cudnn_frontend.h"
#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/src/core/cuda/cuda_check.h"
#include "infini_train/src/core/cuda/cuda_stream.h"

// One graph a shape, built when it is first asked for: that takes the host some milliseconds, a call after it some
// microseconds. Query, key and value are read from and their gradients written to packed rows, by strides.

namespace infini_train::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using GraphTensor = std::shared_ptr<Tensor_attributes>;

using infini_train::cuda::CudaStream;
using infini_train::cuda::CudaStreamOf;

// Below, a call is too short for a faster kernel to matter. In steps, because a text that grows token by token would
// build a graph for each of its lengths.
constexpr int64_t kMinLength = 64;
constexpr int64_t kLengthStep = 8;
// Rows of heads are read 16 bytes at a time. Narrow heads leave most of a tensor core's tile empty.
constexpr int64_t kMinHeadDim = 32;
constexpr int64_t kHeadDimStep = 8;
constexpr uintptr_t kAlignment = 16;

enum class Pass { kForward, kBackward, kDeterministicBackward };

/// The tensors of a graph.
enum Id : int64_t { kQuery = 1, kKey, kValue, kOut, kLse, kDout, kDquery, kDkey, kDvalue, kQueryLengths, kKeyLengths };
using Pointers = std::unordered_map<int64_t, void*>;

void CheckCudnn(cudnnStatus_t status, const char* call) {
    if (status != CUDNN_STATUS_SUCCESS) {
        throw Error({.where = "cuDNN",
                     .what = std::string(cudnnGetErrorString(status)) + " in " + call,
                     .kind = Error::Kind::kRuntime});
    }
}

/// A graph that runs, or null where cuDNN cannot.
struct Plan {
    std::unique_ptr<Graph> graph;
    int64_t workspace_bytes = 0;
    bool takes_lengths = false;
};

/// Up to 9.15 cuDNN's backward must be told the length of every sample where the last tile of keys is not full. (The
/// front end would do so by itself, by copies from host memory that is gone when a CUDA graph runs them again.)
bool NeedsLengths(const AttentionSizes& sizes, Pass pass) {
    constexpr int64_t kKeysOfTile = 128;
    constexpr size_t kLastVersion = 91500;
    return pass != Pass::kForward && sizes.length % kKeysOfTile != 0 && cudnnGetVersion() <= kLastVersion;
}

/// [B, heads, T, D] in rows of row_width elements.
Tensor_attributes Heads(const char* name, Id id, const AttentionSizes& sizes, int64_t num_heads, int64_t row_width) {
    return Tensor_attributes()
        .set_name(name)
        .set_uid(id)
        .set_data_type(fe::DataType_t::BFLOAT16)
        .set_dim({sizes.batch_size, num_heads, sizes.length, sizes.head_dim})
        .set_stride({sizes.length * row_width, sizes.head_dim, row_width, 1});
}

Tensor_attributes Lse(const AttentionSizes& sizes) {
    return Tensor_attributes()
        .set_name("lse")
        .set_uid(kLse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({sizes.batch_size, sizes.num_heads, sizes.length, 1})
        .set_stride({sizes.num_heads * sizes.length, sizes.length, 1, 1});
}

/// Gives a tensor that the graph made its place in memory.
void MakeOutput(const GraphTensor& tensor, const Tensor_attributes& like) {
    tensor->set_output(true)
        .set_uid(like.get_uid())
        .set_data_type(like.get_data_type())
        .set_dim(like.get_dim())
        .set_stride(like.get_stride());
}

void AddForward(const AttentionSizes& sizes, float scale, Graph& graph) {
    const int64_t width = sizes.row_width();
    const GraphTensor query = graph.tensor(Heads("query", kQuery, sizes, sizes.num_heads, width));
    const GraphTensor key = graph.tensor(Heads("key", kKey, sizes, sizes.num_kv_heads, width));
    const GraphTensor value = graph.tensor(Heads("value", kValue, sizes, sizes.num_kv_heads, width));
    const auto [out, lse] = graph.sdpa(query, key, value,
                                       fe::graph::SDPA_attributes()
                                           .set_name("attention")
                                           .set_causal_mask(true)
                                           .set_attn_scale(scale)
                                           .set_generate_stats(true));
    MakeOutput(out, Heads("out", kOut, sizes, sizes.num_heads, sizes.out_width()));
    MakeOutput(lse, Lse(sizes));
}

void AddBackward(const AttentionSizes& sizes, float scale, bool deterministic, bool takes_lengths, Graph& graph) {
    const int64_t width = sizes.row_width();
    const int64_t out_width = sizes.out_width();
    const GraphTensor query = graph.tensor(Heads("query", kQuery, sizes, sizes.num_heads, width));
    const GraphTensor key = graph.tensor(Heads("key", kKey, sizes, sizes.num_kv_heads, width));
    const GraphTensor value = graph.tensor(Heads("value", kValue, sizes, sizes.num_kv_heads, width));
    const GraphTensor out = graph.tensor(Heads("out", kOut, sizes, sizes.num_heads, out_width));
    const GraphTensor dout = graph.tensor(Heads("dout", kDout, sizes, sizes.num_heads, out_width));
    const GraphTensor lse = graph.tensor(Lse(sizes));
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_name("attention_backward")
                          .set_causal_mask(true)
                          .set_attn_scale(scale)
                          .set_deterministic_algorithm(deterministic);
    if (takes_lengths) {
        const auto lengths = [&](const char* name, Id id) {
            return graph.tensor(Tensor_attributes()
                                    .set_name(name)
                                    .set_uid(id)
                                    .set_data_type(fe::DataType_t::INT32)
                                    .set_dim({sizes.batch_size, 1, 1, 1})
                                    .set_stride({1, 1, 1, 1}));
        };
        attributes.set_padding_mask(true)
            .set_seq_len_q(lengths("query_lengths", kQueryLengths))
            .set_seq_len_kv(lengths("key_lengths", kKeyLengths));
    }
    const auto [dquery, dkey, dvalue] = graph.sdpa_backward(query, key, value, out, dout, lse, attributes);
    MakeOutput(dquery, Heads("dquery", kDquery, sizes, sizes.num_heads, width));
    MakeOutput(dkey, Heads("dkey", kDkey, sizes, sizes.num_kv_heads, width));
    MakeOutput(dvalue, Heads("dvalue", kDvalue, sizes, sizes.num_kv_heads, width));
}

/// A rank's handle and graphs.
class CudnnState {
 public:
    explicit CudnnState(int gpu_index) : gpu_index_(gpu_index) { CheckCudnn(cudnnCreate(&handle_), "cudnnCreate"); }
    ~CudnnState() {
        // Perhaps on another thread than the rank's. Not a DeviceGuard, which throws when the driver is gone.
        int before = 0;
        INFINI_CUDA_LOG(cudaGetDevice(&before));
        INFINI_CUDA_LOG(cudaSetDevice(gpu_index_));
        plans_.clear();
        if (const cudnnStatus_t status = cudnnDestroy(handle_); status != CUDNN_STATUS_SUCCESS) {
            LOG(ERROR) << "cuDNN: " << cudnnGetErrorString(status) << " in cudnnDestroy";
        }
        INFINI_CUDA_LOG(cudaSetDevice(before));
    }
    CudnnState(const CudnnState&) = delete;
    CudnnState& operator=(const CudnnState&) = delete;

    cudnnHandle_t handle() const { return handle_; }
    const Plan& PlanFor(const AttentionSizes& sizes, Pass pass);

 private:
    Plan Build(const AttentionSizes& sizes, Pass pass);

    int gpu_index_;
    cudnnHandle_t handle_ = nullptr;
    std::map<std::array<int64_t, 6>, Plan> plans_;  // by sizes and pass
};

const Plan& CudnnState::PlanFor(const AttentionSizes& sizes, Pass pass) {
    const std::array<int64_t, 6> key{sizes.batch_size,   sizes.length,   sizes.num_heads,
                                     sizes.num_kv_heads, sizes.head_dim, static_cast<int64_t>(pass)};
    const auto found = plans_.find(key);
    return found != plans_.end() ? found->second : plans_.emplace(key, Build(sizes, pass)).first->second;
}

Plan CudnnState::Build(const AttentionSizes& sizes, Pass pass) {
    Plan plan{.graph = std::make_unique<Graph>(), .takes_lengths = NeedsLengths(sizes, pass)};
    plan.graph->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    const float scale = 1.0f / std::sqrt(static_cast<float>(sizes.head_dim));
    if (pass == Pass::kForward) {
        AddForward(sizes, scale, *plan.graph);
    } else {
        AddBackward(sizes, scale, pass == Pass::kDeterministicBackward, plan.takes_lengths, *plan.graph);
    }
    fe::error_t status = plan.graph->build(handle_, {fe::HeurMode_t::A});
    if (status.is_bad()) {
        LOG_FIRST_N(INFO, 1) << "attention in bfloat16 goes to kernels of our own where cuDNN has none, as in the "
                             << (pass == Pass::kForward ? "forward" : "backward") << " for B " << sizes.batch_size
                             << ", T " << sizes.length << ", heads " << sizes.num_heads << "/" << sizes.num_kv_heads
                             << " x " << sizes.head_dim << ": " << status.get_message();
        return {};
    }
    plan.workspace_bytes = plan.graph->get_workspace_size();
    return plan;
}

bool Serves(const AttentionSizes& sizes) {
    return sizes.length >= kMinLength && sizes.length % kLengthStep == 0 && sizes.head_dim >= kMinHeadDim &&
           sizes.head_dim % kHeadDimStep == 0;
}

bool AreAligned(const Pointers& pointers) {
    uintptr_t bits = 0;
    for (const auto& [id, pointer] : pointers) {
        bits |= reinterpret_cast<uintptr_t>(pointer);
    }
    return bits % kAlignment == 0;
}

/// Runs the graph of a pass on the tensors in pointers, if there is one.
bool Run(const AttentionSizes& sizes, Pass pass, const Device& device, Pointers pointers) {
    if (!AreAligned(pointers)) {
        return false;
    }
    CudaStream& stream = CudaStreamOf(device);
    CudnnState& state = stream.Get<CudnnState>();
    CheckCudnn(cudnnSetStream(state.handle(), stream.get()), "cudnnSetStream");
    const Plan& plan = state.PlanFor(sizes, pass);
    if (plan.graph == nullptr) {
        return false;
    }
    std::shared_ptr<Tensor> lengths;
    if (plan.takes_lengths) {
        lengths = Tensor::Empty({sizes.batch_size}, DataType::kInt32, device);
        FillInt32(*lengths, static_cast<int32_t>(sizes.length));
        pointers[kQueryLengths] = lengths->raw_data();
        pointers[kKeyLengths] = lengths->raw_data();
    }
    const auto workspace = Tensor::Empty({plan.workspace_bytes}, DataType::kUInt8, device);
    fe::error_t status = plan.graph->execute(state.handle(), pointers, workspace->raw_data());
    if (status.is_bad()) {
        throw Error(
            {.where = "cuDNN", .what = "attention failed: " + status.get_message(), .kind = Error::Kind::kRuntime});
    }
    return true;
}

/// cuDNN takes what it only reads as void*, too.
void* At(const Tensor& tensor, int64_t element = 0) {
    return const_cast<char*>(static_cast<const char*>(tensor.raw_data())) +
           element * static_cast<int64_t>(SizeOf(tensor.dtype()));
}

bool Forward(const AttentionSizes& sizes, const Tensor& qkv, Tensor& out, Tensor& lse) {
    return Serves(sizes) && Run(sizes, Pass::kForward, qkv.device(),
                                {{kQuery, At(qkv)},
                                 {kKey, At(qkv, sizes.key_offset(0))},
                                 {kValue, At(qkv, sizes.value_offset(0))},
                                 {kOut, At(out)},
                                 {kLse, At(lse)}});
}

bool Backward(const AttentionSizes& sizes, const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
              bool deterministic, Tensor& dqkv) {
    return Serves(sizes) && Run(sizes, deterministic ? Pass::kDeterministicBackward : Pass::kBackward, qkv.device(),
                                {{kQuery, At(qkv)},
                                 {kKey, At(qkv, sizes.key_offset(0))},
                                 {kValue, At(qkv, sizes.value_offset(0))},
                                 {kOut, At(out)},
                                 {kLse, At(lse)},
                                 {kDout, At(dout)},
                                 {kDquery, At(dqkv)},
                                 {kDkey, At(dqkv, sizes.key_offset(0))},
                                 {kDvalue, At(dqkv, sizes.value_offset(0))}});
}

[[maybe_unused]] const bool registered = [] {
    cudnn_attention = {.forward = Forward, .backward = Backward};
    return true;
}();

}  // namespace
}  // namespace infini_train::kernels::cuda
