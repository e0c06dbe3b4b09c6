#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/autograd/engine.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/core/random.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train::test {

struct GradCheckOptions {
    // Of the finite differences. A float32 output carries a rounding error of about 1e-7, which the difference divides
    // by the step; the error of the formula itself grows with its fourth power.
    float step = 1e-2f;
    double tolerance = 1e-3;  // of the largest element of an input's gradient
};

/// Expects that the gradients that autograd gives to the inputs are those of finite differences, element by element.
/// The scalar that is differentiated is the sum, in double, of the elements of f(inputs) with fixed random weights.
///
/// f: inputs -> one float32 tensor; the same values each time. inputs: those that require a gradient are float32
/// leaves, which get their old values back; the others, of any dtype, are only handed on.
inline void CheckGradients(const std::function<std::shared_ptr<Tensor>(const TensorList&)>& f, const TensorList& inputs,
                           const GradCheckOptions& options = {}) {
    const auto weight_of = [](size_t i) { return 2.0f * Uniform({.seed = 1234, .stream = 0}, i) - 1.0f; };
    const auto evaluate = [&] {
        const autograd::NoGradGuard no_grad;
        const std::vector<float> values = f(inputs)->ToVector<float>();
        double sum = 0.0;
        for (size_t i = 0; i < values.size(); ++i) {
            sum += double{weight_of(i)} * double{values[i]};
        }
        return sum;
    };

    for (const std::shared_ptr<Tensor>& input : inputs) {
        if (input != nullptr && input->requires_grad()) {
            input->ClearGrad();
        }
    }
    {
        const std::shared_ptr<Tensor> output = f(inputs);
        std::vector<float> weights(static_cast<size_t>(output->num_elements()));
        for (size_t i = 0; i < weights.size(); ++i) {
            weights[i] = weight_of(i);
        }
        autograd::Backward({output}, {Tensor::FromVector(weights, output->shape(), output->device())});
    }

    for (size_t i = 0; i < inputs.size(); ++i) {
        Tensor* input = inputs[i].get();
        if (input == nullptr || !input->requires_grad()) {
            continue;
        }
        ASSERT_NE(input->grad(), nullptr) << "input " << i << " got no gradient";
        const std::vector<float> grad = input->grad()->ToVector<float>();
        std::vector<double> difference(grad.size());
        float* values = input->data<float>();
        for (size_t j = 0; j < grad.size(); ++j) {
            const float before = values[j];
            const auto at = [&](int steps) {
                values[j] = before + static_cast<float>(steps) * options.step;
                return evaluate();
            };
            difference[j] = (8.0 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12.0 * double{options.step});
            values[j] = before;
        }
        // Where all gradients vanish, what is left of the difference is rounding error: hence the least scale.
        double scale = 1e-2;
        for (const double element : difference) {
            scale = std::max(scale, std::abs(element));
        }
        for (size_t j = 0; j < grad.size(); ++j) {
            EXPECT_NEAR(double{grad[j]}, difference[j], options.tolerance * scale)
                << "input " << i << " element " << j << " of " << grad.size();
        }
    }
}

}  // namespace infini_train::test
