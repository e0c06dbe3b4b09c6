#include "infini_train/include/kernels/dropout.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"
#include "infini_train/src/kernels/cpu/vector_math.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kWords = 4;     // random numbers of one Philox block
constexpr int64_t kBlocks = 16;   // Philox blocks at a time: one a vector lane
constexpr int64_t kChunk = 4096;  // elements a task, a multiple of kWords * kBlocks: a long sample makes many tasks

/// The uniform numbers of kBlocks Philox blocks from first_block on.
void FillUniform(const RandomStream& random, uint64_t first_block, float* uniform) {
    const RandomStream copy = {.seed = random.seed, .stream = random.stream};  // in registers: the loop vectorises
#pragma omp simd
    for (uint64_t block = 0; block < kBlocks; ++block) {
        const std::array<uint32_t, kWords> words = Philox(copy, first_block + block);
        uniform[kWords * block] = UniformFromBits(words[0]);
        uniform[kWords * block + 1] = UniformFromBits(words[1]);
        uniform[kWords * block + 2] = UniformFromBits(words[2]);
        uniform[kWords * block + 3] = UniformFromBits(words[3]);
    }
}

/// Elements [begin, end) of one sample; begin is a multiple of kWords.
template <typename T>
void DropElements(const T* x, const RandomStream& random, int64_t begin, int64_t end, float p, T* y) {
    const float kept = 1.0f - p;
    for (int64_t first = begin; first < end; first += kWords * kBlocks) {
        float uniform[kWords * kBlocks];
        FillUniform(random, static_cast<uint64_t>(first / kWords), uniform);
        const int64_t count = std::min(end - first, kWords * kBlocks);
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
            const float value = static_cast<float>(x[first + i]) / kept;
            Store(uniform[i] >= p ? value : 0.0f, y[first + i]);
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> Dropout(const Tensor& x, float p, const DropoutKey& key) {
    CHECK(0.0f <= p && p < 1.0f) << "dropout: p " << p;
    auto y = Tensor::Empty(x.shape(), x.dtype(), x.device());
    const int64_t num_samples = x.dim(0);
    if (x.num_elements() == 0) {
        return y;
    }
    const int64_t sample_elements = x.num_elements() / num_samples;
    DispatchFloat(x.dtype(), [&](auto zero) {
        using T = decltype(zero);
        const T* x_data = x.data<T>();
        T* y_data = y->data<T>();
#pragma omp parallel for collapse(2) if (x.num_elements() > kChunk)
        for (int64_t sample = 0; sample < num_samples; ++sample) {
            for (int64_t begin = 0; begin < sample_elements; begin += kChunk) {
                const uint64_t stream =
                    Combine(Combine(key.step, key.layer), key.first_sample + static_cast<uint64_t>(sample));
                DropElements(x_data + sample * sample_elements, {.seed = key.seed, .stream = stream}, begin,
                             std::min(begin + kChunk, sample_elements), p, y_data + sample * sample_elements);
            }
        }
    });
    return y;
}

}  // namespace infini_train::kernels::cpu
