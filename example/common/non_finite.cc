#include "example/common/non_finite.h"

#include <cmath>
#include <optional>
#include <string>

#include "infini_train/include/comm/wait_error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/nn/state_dict.h"

namespace infini_train {
namespace {

/// "inf", "-inf" or "nan".
std::optional<std::string> FirstNonFinite(const Tensor& values) {
    for (const float value : values.ToVector<float>()) {
        if (!std::isfinite(value)) {
            return std::isnan(value) ? "nan" : StrCat(value);
        }
    }
    return std::nullopt;
}

std::string FindValue(const std::vector<std::shared_ptr<nn::Module>>& chunks) {
    for (const std::shared_ptr<nn::Module>& chunk : chunks) {
        for (const auto& [name, values] : nn::StateDict(*chunk)) {
            if (const std::optional<std::string> found = FirstNonFinite(*values)) {
                return StrCat("parameter ", name, " holds ", *found);
            }
        }
    }
    return "";
}

std::string FindGrad(const std::vector<std::shared_ptr<nn::Module>>& chunks) {
    for (const std::shared_ptr<nn::Module>& chunk : chunks) {
        for (const nn::NamedParameter& parameter : chunk->NamedParameters()) {
            const std::shared_ptr<Tensor> grad = parameter.tensor->grad();
            if (const std::optional<std::string> found = grad == nullptr ? std::nullopt : FirstNonFinite(*grad)) {
                return StrCat("the gradient of ", parameter.name, " holds ", *found);
            }
        }
    }
    return "";
}

}  // namespace

NonFinite FindNonFinite(const std::vector<std::shared_ptr<nn::Module>>& chunks, const comm::Mesh& mesh) {
    for (const std::string& own : {FindValue(chunks), FindGrad(chunks)}) {
        const std::vector<std::string> all =
            comm::WaitingAt("for what is not finite", [&] { return mesh.world->ExchangeText(own); });
        for (size_t rank = 0; rank < all.size(); ++rank) {
            if (!all[rank].empty()) {
                return {.rank = static_cast<int>(rank), .what = StrCat("rank ", rank, ": ", all[rank])};
            }
        }
    }
    return {};
}

}  // namespace infini_train
