#include "infini_train/include/kernels/optimizer_step.h"

#include "glog/logging.h"

namespace infini_train::kernels {
namespace {

void CheckOperand(const char* operation, const char* name, const Tensor* tensor, const Tensor& master, DataType dtype) {
    CHECK(tensor != nullptr) << operation << ": no " << name << " for a parameter " << ToString(master.shape());
    CHECK(tensor->shape() == master.shape() && tensor->dtype() == dtype && tensor->device() == master.device())
        << operation << ": " << name << " " << ToString(tensor->shape()) << " " << Name(tensor->dtype()) << " on "
        << ToString(tensor->device()) << " for a parameter " << ToString(master.shape()) << " on "
        << ToString(master.device()) << ", wanted " << Name(dtype);
}

}  // namespace

void CheckOptimizerStep(const char* operation, std::span<const OptimizerParameter> parameters, const Tensor& grad_scale,
                        bool has_moment1, bool has_moment2) {
    CHECK(grad_scale.shape() == Shape{1} && grad_scale.dtype() == DataType::kFloat32)
        << operation << ": grad_scale " << ToString(grad_scale.shape()) << " " << Name(grad_scale.dtype())
        << ", wanted [1] float32";
    for (const OptimizerParameter& parameter : parameters) {
        CHECK(parameter.master != nullptr) << operation << ": a parameter without values";
        const Tensor& master = *parameter.master;
        CheckOperand(operation, "master", parameter.master, master, DataType::kFloat32);
        CHECK(master.device() == grad_scale.device()) << operation << ": a parameter on " << ToString(master.device())
                                                      << ", grad_scale on " << ToString(grad_scale.device());
        CheckOperand(operation, "gradient", parameter.grad, master, DataType::kFloat32);
        if (parameter.value != nullptr) {
            CheckOperand(operation, "value", parameter.value, master, DataType::kBFloat16);
        }
        if (has_moment1) {
            CheckOperand(operation, "first moment", parameter.moment1, master, DataType::kFloat32);
        }
        if (has_moment2) {
            CheckOperand(operation, "second moment", parameter.moment2, master, DataType::kFloat32);
        }
    }
}

}  // namespace infini_train::kernels
