#include "infini_train/include/core/tensor.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "glog/logging.h"

#include "infini_train/include/common/checked_math.h"

namespace infini_train {

Tensor::Tensor(std::shared_ptr<Storage> storage, void* data, Shape shape, DataType dtype, Device device)
    : storage_(std::move(storage)),
      data_(data),
      shape_(std::move(shape)),
      num_elements_(NumElements(shape_)),
      dtype_(dtype),
      device_(std::move(device)) {}

std::shared_ptr<Tensor> Tensor::Empty(const Shape& shape, DataType dtype, const Device& device) {
    // More bytes than size_t counts are more than the allocator has: it throws.
    const size_t size_bytes =
        CheckedMultiply(static_cast<uint64_t>(NumElements(shape)), SizeOf(dtype)).value_or(SIZE_MAX);
    auto storage = std::make_shared<Storage>(device.allocator, size_bytes);
    void* data = storage->data();
    return std::shared_ptr<Tensor>(new Tensor(std::move(storage), data, shape, dtype, device));
}

std::shared_ptr<Tensor> Tensor::Zeros(const Shape& shape, DataType dtype, const Device& device) {
    std::shared_ptr<Tensor> tensor = Empty(shape, dtype, device);
    tensor->SetZero();
    return tensor;
}

int64_t Tensor::dim(int axis) const {
    const int index = axis < 0 ? axis + num_dims() : axis;
    CHECK(0 <= index && index < num_dims()) << "axis " << axis << " of shape " << ToString(shape_);
    return shape_[static_cast<size_t>(index)];
}

int64_t Tensor::num_rows() const {
    int64_t num_rows = 1;
    for (int axis = 0; axis + 1 < num_dims(); ++axis) {
        num_rows *= dim(axis);
    }
    return num_rows;
}

void Tensor::CheckDataType(DataType dtype) const {
    CHECK(dtype_ == dtype) << "a " << Name(dtype_) << " tensor of shape " << ToString(shape_) << " read as "
                           << Name(dtype);
}

std::shared_ptr<Tensor> Tensor::View(const Shape& shape) const {
    CHECK_EQ(NumElements(shape), num_elements_) << ToString(shape_) << " seen as " << ToString(shape);
    return std::shared_ptr<Tensor>(new Tensor(storage_, data_, shape, dtype_, device_));
}

std::shared_ptr<Tensor> Tensor::Slice(int64_t begin, int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= dim(0)) << "[" << begin << ", " << end << ") of " << ToString(shape_);
    Shape shape = shape_;
    shape[0] = end - begin;
    const int64_t row_elements = dim(0) == 0 ? 0 : num_elements_ / dim(0);
    char* data = static_cast<char*>(data_) + static_cast<size_t>(begin * row_elements) * SizeOf(dtype_);
    return std::shared_ptr<Tensor>(new Tensor(storage_, data, shape, dtype_, device_));
}

std::shared_ptr<Tensor> Tensor::Detach() const {
    return View(shape_);
}

std::shared_ptr<Tensor> Tensor::HandOver(const Device& to) const {
    CHECK(to == device_) << "from " << ToString(device_) << " to " << ToString(to);
    storage_->CountOn(to.allocator);
    return std::shared_ptr<Tensor>(new Tensor(storage_, data_, shape_, dtype_, to));
}

void Tensor::SetZero() {
    if (device_.type == DeviceType::kMeta) {
        return;
    }
    if (num_elements_ == 0) {
        return;
    }
    if (Stream* const stream = StreamOf(device_); stream != nullptr) {
        stream->SetZero(data_, size_bytes());
    } else {
        std::memset(data_, 0, size_bytes());
    }
}

void Tensor::CopyFrom(const Tensor& source) {
    CHECK(source.shape_ == shape_) << ToString(source.shape_) << " into " << ToString(shape_);
    CHECK(source.dtype_ == dtype_) << Name(source.dtype_) << " into " << Name(dtype_);
    if (device_.type == DeviceType::kMeta || num_elements_ == 0) {
        return;
    }
    if (source.device_.type == DeviceType::kCUDA && device_.type == DeviceType::kCUDA) {
        StreamOf(device_)->Copy(source.data_, data_, size_bytes());
    } else if (device_.type == DeviceType::kCUDA) {
        CHECK(source.device_.type == DeviceType::kCPU) << ToString(source.device_);
        CopyFromHost(source.data_, *this);
    } else {
        CopyToHost(source, data_);
    }
}

void CopyFromHost(const void* source, Tensor& destination) {
    if (destination.device().type == DeviceType::kMeta) {
        return;
    }
    if (destination.num_elements() == 0) {
        return;
    }
    if (Stream* const stream = StreamOf(destination.device()); stream != nullptr) {
        stream->CopyFromHost(source, destination.raw_data(), destination.size_bytes());
    } else {
        std::memcpy(destination.raw_data(), source, destination.size_bytes());
    }
}

void CopyToHost(const Tensor& source, void* destination) {
    CHECK(source.device().type != DeviceType::kMeta)
        << "a tensor " << ToString(source.shape()) << " on a meta device has no values";
    if (source.num_elements() == 0) {
        return;
    }
    if (Stream* const stream = StreamOf(source.device()); stream != nullptr) {
        stream->CopyToHost(source.raw_data(), destination, source.size_bytes());
    } else {
        std::memcpy(destination, source.raw_data(), source.size_bytes());
    }
}

void CheckNumElements(size_t got, int64_t wanted) {
    CHECK_EQ(static_cast<int64_t>(got), wanted);
}

void Tensor::set_requires_grad(bool requires_grad) {
    CHECK(grad_function_ == nullptr) << "only a tensor that was not computed can be a leaf";
    CHECK(IsFloat(dtype_)) << "a " << Name(dtype_) << " tensor has no gradient";
    requires_grad_ = requires_grad;
}

Tensor::GradSlot Tensor::AcquireGrad() {
    CHECK(requires_grad_) << "not a leaf";
    if (grad_ == nullptr) {
        grad_ = Empty(shape_, DataType::kFloat32, device_);
    }
    return {.grad = grad_, .accumulate = std::exchange(has_grad_, true)};
}

void Tensor::RunGradHooks() {
    for (const GradHook& hook : grad_hooks_) {
        hook(*this);
    }
}

void Tensor::set_master(std::shared_ptr<Tensor> master) {
    CHECK_NOTNULL(master.get());
    CHECK(master->dtype() == DataType::kFloat32 && master->shape() == shape_) << ToString(master->shape());
    master_ = std::move(master);
}

void Tensor::set_grad_function(std::shared_ptr<autograd::Function> function, int output_index) {
    CHECK(!requires_grad_) << "a leaf cannot be the output of a function";
    CHECK(grad_function_ == nullptr) << "a function returned a tensor that another one computed";
    grad_function_ = std::move(function);
    output_index_ = output_index;
}

}  // namespace infini_train
