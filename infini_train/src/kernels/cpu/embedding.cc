#include "infini_train/include/kernels/embedding.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "glog/logging.h"

#include "infini_train/src/kernels/cpu/dispatch.h"

namespace infini_train::kernels::cpu {
namespace {

constexpr int64_t kSerialElements = 1 << 14;  // below this waking a team costs more than it saves

const int32_t* CheckedIds(const char* name, const Tensor& ids, int64_t vocab_size) {
    const int32_t* data = ids.data<int32_t>();
    for (int64_t n = 0; n < ids.num_elements(); ++n) {
        CHECK(0 <= data[n] && data[n] < vocab_size)
            << name << ": id " << data[n] << " at position " << n << ", vocabulary of " << vocab_size;
    }
    return data;
}

/// One piece a thread: only what is much larger than the caches does memset write past them, four times as fast.
void SetZero(float* data, int64_t count) {
#pragma omp parallel if (count > kSerialElements)
    {
        const int64_t thread = omp_get_thread_num();
        const int64_t num_threads = omp_get_num_threads();
        const int64_t begin = count * thread / num_threads;
        const int64_t end = count * (thread + 1) / num_threads;
        std::memset(data + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
    }
}

/// Each task has a range of columns and walks over all positions: the same order of additions with any number of tasks.
template <typename T>
void AddRows(const T* dy, const int32_t* ids, int64_t num_ids, int64_t num_columns, float* dweight) {
    constexpr int64_t kColumns = 64;  // four cache lines of dweight: tasks for many threads
#pragma omp parallel for if (num_ids * num_columns > kSerialElements)
    for (int64_t begin = 0; begin < num_columns; begin += kColumns) {
        const int64_t end = std::min(num_columns, begin + kColumns);
        for (int64_t n = 0; n < num_ids; ++n) {
            const T* grad = dy + n * num_columns;
            float* row = dweight + ids[n] * num_columns;
#pragma omp simd
            for (int64_t c = begin; c < end; ++c) {
                row[c] += static_cast<float>(grad[c]);
            }
        }
    }
}

}  // namespace

std::shared_ptr<Tensor> EmbeddingForward(const Tensor& ids, const Tensor& weight) {
    CHECK(weight.num_dims() == 2 && IsFloat(weight.dtype()))
        << "embedding_forward: weight " << ToString(weight.shape()) << " " << Name(weight.dtype());
    const int32_t* id = CheckedIds("embedding_forward", ids, weight.dim(0));
    Shape shape = ids.shape();
    shape.push_back(weight.dim(1));
    auto y = Tensor::Empty(shape, weight.dtype(), weight.device());
    const size_t row_bytes = static_cast<size_t>(weight.dim(1)) * SizeOf(weight.dtype());
    const char* source = static_cast<const char*>(weight.raw_data());
    char* destination = static_cast<char*>(y->raw_data());
    if (y->num_elements() == 0) {
        return y;
    }
#pragma omp parallel for if (y->num_elements() > kSerialElements)
    for (int64_t n = 0; n < ids.num_elements(); ++n) {
        std::memcpy(destination + static_cast<size_t>(n) * row_bytes, source + static_cast<size_t>(id[n]) * row_bytes,
                    row_bytes);
    }
    return y;
}

void EmbeddingBackward(const Tensor& dy, const Tensor& ids, Tensor& dweight, bool accumulate) {
    CHECK(dweight.num_dims() == 2 && dweight.dtype() == DataType::kFloat32 && dy.dim(-1) == dweight.dim(1) &&
          dy.num_rows() == ids.num_elements())
        << "embedding_backward: dy " << ToString(dy.shape()) << ", ids " << ToString(ids.shape()) << ", dweight "
        << ToString(dweight.shape()) << " " << Name(dweight.dtype());
    const int32_t* id = CheckedIds("embedding_backward", ids, dweight.dim(0));
    if (!accumulate && dweight.num_elements() > 0) {
        SetZero(dweight.data<float>(), dweight.num_elements());
    }
    DispatchFloat(dy.dtype(), [&](auto zero) {
        using T = decltype(zero);
        AddRows(dy.data<T>(), id, ids.num_elements(), dweight.dim(1), dweight.data<float>());
    });
}

}  // namespace infini_train::kernels::cpu
