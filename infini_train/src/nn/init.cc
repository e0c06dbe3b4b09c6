#include "infini_train/include/nn/init.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "glog/logging.h"

namespace infini_train::nn {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 20;  // bounds the host copy of a tensor on a device

/// Fills x block by block from value(index).
template <typename F>
void Generate(Tensor& x, F&& value) {
    CHECK(x.dtype() == DataType::kFloat32) << Name(x.dtype());
    const std::shared_ptr<Tensor> flat = x.View({x.num_elements()});
    std::vector<float> block;
    for (int64_t begin = 0; begin < x.num_elements(); begin += kBlockElements) {
        const int64_t end = std::min(begin + kBlockElements, x.num_elements());
        block.resize(static_cast<size_t>(end - begin));
#pragma omp parallel for
        for (int64_t i = begin; i < end; ++i) {
            block[static_cast<size_t>(i - begin)] = value(i);
        }
        CopyFromHost(block.data(), *flat->Slice(begin, end));
    }
}

}  // namespace

Tensor& MasterOf(Tensor& parameter) {
    return parameter.master() != nullptr ? *parameter.master() : parameter;
}

void InitNormal(Tensor& x, float stddev, const RandomStream& random) {
    Generate(x, [&](int64_t i) { return static_cast<float>(stddev * Normal(random, static_cast<uint64_t>(i))); });
}

void InitConstant(Tensor& x, float value) {
    Generate(x, [value](int64_t) { return value; });
}

}  // namespace infini_train::nn
