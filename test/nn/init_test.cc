#include "infini_train/include/nn/init.h"

#include <vector>

#include "gtest/gtest.h"

namespace infini_train::nn {
namespace {

TEST(Init, NormalValuesAreThoseOfTheStreamByPosition) {
    const RandomStream random = {.seed = 3, .stream = StreamOf("weight")};
    for (const int64_t size : {0, 1, 3, 4, 7, (1 << 20) + 5}) {
        const auto x = Tensor::Empty({size}, DataType::kFloat32, MakeCpuDevice());
        InitNormal(*x, 0.5f, random);
        const std::vector<float> values = x->ToVector<float>();
        for (size_t i = 0; i<values.size(); i += values.size()> 100 ? 999 : 1) {
            ASSERT_EQ(values[i], static_cast<float>(0.5 * Normal(random, i))) << i;
        }
        if (!values.empty()) {
            EXPECT_EQ(values.back(), static_cast<float>(0.5 * Normal(random, values.size() - 1)));
        }
    }
}

TEST(Init, ConstantFillsEveryElement) {
    const auto x = Tensor::Empty({7}, DataType::kFloat32, MakeCpuDevice());
    InitConstant(*x, 1.5f);
    EXPECT_EQ(x->ToVector<float>(), std::vector<float>(7, 1.5f));
}

}  // namespace
}  // namespace infini_train::nn
