#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "infini_train/include/core/device.h"
#include "infini_train/include/core/dtype.h"
#include "infini_train/include/core/shape.h"
#include "infini_train/include/core/storage.h"

namespace infini_train {

namespace autograd {
class Function;
}
class Tensor;
using TensorList = std::vector<std::shared_ptr<Tensor>>;

/// A contiguous row-major array, a shape and a dtype over a storage. Views share the storage. What computes with
/// tensors is in kernels/ (values) and autograd/ (values and gradients).
///
/// A *leaf* is a tensor that requires a gradient and was not computed: a parameter. Its gradient is float32, whatever
/// its dtype, and is summed in place over micro-batches. A parameter kept in bfloat16 has a float32 *master*, which is
/// what optimizers update and files hold.
class Tensor {
 public:
    /// Unset memory. Throws Error when the device has none left.
    static std::shared_ptr<Tensor> Empty(const Shape& shape, DataType dtype, const Device& device);
    static std::shared_ptr<Tensor> Zeros(const Shape& shape, DataType dtype, const Device& device);
    /// A copy of host values, as many as the shape says.
    template <typename T>
    static std::shared_ptr<Tensor> FromVector(const std::vector<T>& values, const Shape& shape, const Device& device);

    const Shape& shape() const { return shape_; }
    int num_dims() const { return static_cast<int>(shape_.size()); }
    /// Extent of an axis; -1 is the last.
    int64_t dim(int axis) const;
    int64_t num_elements() const { return num_elements_; }
    /// Product of all extents but the last: the rows that most kernels work on.
    int64_t num_rows() const;
    DataType dtype() const { return dtype_; }
    const Device& device() const { return device_; }
    size_t size_bytes() const { return static_cast<size_t>(num_elements_) * SizeOf(dtype_); }

    void* raw_data() { return data_; }
    const void* raw_data() const { return data_; }
    /// CHECKs that T is the dtype.
    template <typename T>
    T* data();
    template <typename T>
    const T* data() const;

    /// The same elements in another shape of as many; another [begin, end) of the first axis; the same tensor without
    /// its part in autograd. All share the storage.
    std::shared_ptr<Tensor> View(const Shape& shape) const;
    std::shared_ptr<Tensor> Slice(int64_t begin, int64_t end) const;
    std::shared_ptr<Tensor> Detach() const;
    /// True when no other tensor sees this storage, so that a kernel may write over it.
    bool owns_storage_alone() const { return storage_.use_count() == 1; }
    /// Another stream uses the storage until the event: its memory is not used again before.
    void UsedUntil(std::shared_ptr<const Event> event) const { storage_->UsedUntil(std::move(event)); }
    /// The same elements for another rank with the same hardware: not copied, without a part in autograd, and from now
    /// on live on the allocator of that rank (the whole storage, so all its views).
    std::shared_ptr<Tensor> HandOver(const Device& to) const;

    void SetZero();
    /// Copies the values of a tensor of the same shape and dtype, on this device or another, in the order of this
    /// tensor's stream: work of another stream on the source must be waited for before.
    void CopyFrom(const Tensor& source);
    /// The values on the host; CHECKs that T is the dtype.
    template <typename T>
    std::vector<T> ToVector() const;

    // --- autograd: leaves
    bool requires_grad() const { return requires_grad_ || grad_function_ != nullptr; }
    /// Makes a leaf of a tensor that was not computed.
    void set_requires_grad(bool requires_grad);
    /// The gradient summed so far, float32; null when there is none since ClearGrad.
    std::shared_ptr<Tensor> grad() const { return has_grad_ ? grad_ : nullptr; }
    /// Where to add a gradient: the leaf's float32 buffer, kept from step to step, and whether it holds a sum already
    /// (false: what is in it is old, so write and do not add). The caller must fill it.
    struct GradSlot {
        std::shared_ptr<Tensor> grad;
        bool accumulate = false;
    };
    GradSlot AcquireGrad();
    /// Forgets the gradient; the buffer stays.
    void ClearGrad() { has_grad_ = false; }
    /// Called with this leaf each time a gradient has been added to it.
    using GradHook = std::function<void(Tensor&)>;
    void AddGradHook(GradHook hook) { grad_hooks_.push_back(std::move(hook)); }
    void RunGradHooks();

    /// The float32 values of a parameter kept in another dtype; null for one kept in float32.
    const std::shared_ptr<Tensor>& master() const { return master_; }
    void set_master(std::shared_ptr<Tensor> master);

    // --- autograd: computed tensors
    const std::shared_ptr<autograd::Function>& grad_function() const { return grad_function_; }
    int output_index() const { return output_index_; }
    void set_grad_function(std::shared_ptr<autograd::Function> function, int output_index);

 private:
    Tensor(std::shared_ptr<Storage> storage, void* data, Shape shape, DataType dtype, Device device);
    void CheckDataType(DataType dtype) const;

    std::shared_ptr<Storage> storage_;
    void* data_;
    Shape shape_;
    int64_t num_elements_;
    DataType dtype_;
    Device device_;

    bool requires_grad_ = false;
    bool has_grad_ = false;
    int output_index_ = 0;
    std::shared_ptr<Tensor> grad_;
    std::shared_ptr<Tensor> master_;
    std::vector<GradHook> grad_hooks_;
    std::shared_ptr<autograd::Function> grad_function_;
};

template <typename T>
T* Tensor::data() {
    CheckDataType(DataTypeOf<T>::value);
    return static_cast<T*>(data_);
}

template <typename T>
const T* Tensor::data() const {
    CheckDataType(DataTypeOf<T>::value);
    return static_cast<const T*>(data_);
}

/// Copies between host memory and a tensor of as many bytes.
void CopyFromHost(const void* source, Tensor& destination);
void CopyToHost(const Tensor& source, void* destination);
/// CHECKs that both counts are the same.
void CheckNumElements(size_t got, int64_t wanted);

template <typename T>
std::shared_ptr<Tensor> Tensor::FromVector(const std::vector<T>& values, const Shape& shape, const Device& device) {
    std::shared_ptr<Tensor> tensor = Empty(shape, DataTypeOf<T>::value, device);
    CheckNumElements(values.size(), tensor->num_elements());
    CopyFromHost(values.data(), *tensor);
    return tensor;
}

template <typename T>
std::vector<T> Tensor::ToVector() const {
    CheckDataType(DataTypeOf<T>::value);
    std::vector<T> values(static_cast<size_t>(num_elements_));
    CopyToHost(*this, values.data());
    return values;
}

}  // namespace infini_train
