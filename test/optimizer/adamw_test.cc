#include "infini_train/include/optimizer/adamw.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "test/support/random_tensor.h"

namespace infini_train::optimizers {
namespace {

using test::RandomTensor;
using test::ToDoubles;

TEST(AdamW, FollowsTheFormulaOverSeveralSteps) {
    const Device device = MakeCpuDevice();
    const std::shared_ptr<Tensor> matrix = RandomTensor({5, 7}, DataType::kFloat32, device, 1);
    const std::shared_ptr<Tensor> bias = RandomTensor({7}, DataType::kFloat32, device, 2);
    const TensorList parameters = {matrix, bias};
    AdamW optimizer(parameters, {.lr = 0.02f, .weight_decay = 0.1f});
    std::vector<std::vector<double>> x, m, v;
    for (const std::shared_ptr<Tensor>& parameter : parameters) {
        parameter->set_requires_grad(true);
        x.push_back(ToDoubles(*parameter));
        m.emplace_back(x.back().size());
        v.emplace_back(x.back().size());
    }
    for (int step = 1; step <= 6; ++step) {
        for (size_t p = 0; p < parameters.size(); ++p) {
            const double decay = p == 0 ? 0.1 : 0.0;
            const std::shared_ptr<Tensor> grad =
                RandomTensor(parameters[p]->shape(), DataType::kFloat32, device, static_cast<uint64_t>(10 * step) + p);
            parameters[p]->AcquireGrad().grad->CopyFrom(*grad);
            const std::vector<double> g = ToDoubles(*grad);
            for (size_t i = 0; i < g.size(); ++i) {
                m[p][i] = 0.9 * m[p][i] + 0.1 * g[i];
                v[p][i] = 0.95 * v[p][i] + 0.05 * g[i] * g[i];
                const double m_hat = m[p][i] / (1 - std::pow(0.9, step));
                const double v_hat = v[p][i] / (1 - std::pow(0.95, step));
                x[p][i] -= 0.02 * (m_hat / (std::sqrt(v_hat) + 1e-8) + decay * x[p][i]);
            }
        }
        optimizer.Step();
        optimizer.ClearGrads();
    }
    EXPECT_EQ(optimizer.step(), 6);
    for (size_t p = 0; p < parameters.size(); ++p) {
        const std::vector<double> got = ToDoubles(*parameters[p]);
        for (size_t i = 0; i < got.size(); ++i) {
            EXPECT_NEAR(got[i], x[p][i], 2e-6) << p << " " << i;
        }
    }
}

TEST(AdamW, NamesItsMoments) {
    const Device device = MakeCpuDevice();
    const AdamW optimizer({Tensor::Zeros({2, 3}, DataType::kFloat32, device)}, {});
    ASSERT_EQ(optimizer.moments().size(), 2u);
    EXPECT_EQ(optimizer.moments()[0].name, "m");
    EXPECT_EQ(optimizer.moments()[1].name, "v");
    EXPECT_EQ(optimizer.moments()[1].tensors[0]->shape(), (Shape{2, 3}));
}

}  // namespace
}  // namespace infini_train::optimizers
