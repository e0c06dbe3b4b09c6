#include "infini_train/include/nn/init.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "glog/logging.h"

#include "infini_train/include/kernels/fill.h"

namespace infini_train::nn {
namespace {

constexpr int64_t kRandomBlock = 4;  // values of one NormalBlock
constexpr int64_t kChunkElements = int64_t{1}
                                   << 20;  // bounds the host copy of a tensor on a device; a multiple of kRandomBlock

}  // namespace

Tensor& MasterOf(Tensor& parameter) {
    return parameter.master() != nullptr ? *parameter.master() : parameter;
}

void InitNormal(Tensor& x, float stddev, const RandomStream& random) {
    CHECK(x.dtype() == DataType::kFloat32) << Name(x.dtype());
    const std::shared_ptr<Tensor> flat = x.View({x.num_elements()});
    std::vector<float> chunk;
    for (int64_t begin = 0; begin < x.num_elements(); begin += kChunkElements) {
        const int64_t num_elements = std::min(kChunkElements, x.num_elements() - begin);
        chunk.resize(static_cast<size_t>(num_elements));
#pragma omp parallel for
        for (int64_t first = 0; first < num_elements; first += kRandomBlock) {
            const std::array<double, kRandomBlock> values =
                NormalBlock(random, static_cast<uint64_t>((begin + first) / kRandomBlock));
            for (int64_t i = first; i < std::min(first + kRandomBlock, num_elements); ++i) {
                chunk[static_cast<size_t>(i)] = static_cast<float>(stddev * values[static_cast<size_t>(i - first)]);
            }
        }
        CopyFromHost(chunk.data(), *flat->Slice(begin, begin + num_elements));
    }
}

void InitConstant(Tensor& x, float value) {
    kernels::fill(x.device().type, x, value);
}

}  // namespace infini_train::nn
