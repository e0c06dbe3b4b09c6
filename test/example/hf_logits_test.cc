// The two models with weights from a folder of Hugging Face's, against the plain formulas of that format in double:
// each logit of each position. A wrong order of rotary pairs shows only beyond the first position; a square matrix that
// is not transposed fits everywhere.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "example/common/load_weights.h"
#include "example/gpt2/spec.h"
#include "example/llama3/spec.h"
#include "infini_train/include/autograd/grad_mode.h"
#include "infini_train/include/core/tensor.h"
#include "test/checkpoint/hf_files.h"
#include "test/support/run_program.h"

namespace infini_train::test {
namespace {

using checkpoint::test::HandTensor;
using checkpoint::test::HandTensors;
using Row = std::vector<double>;
using Rows = std::vector<Row>;  // one a position

constexpr size_t kPositions = 32;
constexpr size_t kVocab = 11;
constexpr size_t kLayers = 2;
constexpr size_t kHeads = 4;
constexpr size_t kHeadDim = 6;
constexpr size_t kChannels = kHeads * kHeadDim;
constexpr double kTolerance = 1e-5;  // docs/numerics.md: float32, summed in another order

int32_t TokenAt(size_t position) {
    return static_cast<int32_t>(position * position * 7 % kVocab);
}

HandTensors RandomTensors(const std::map<std::string, Shape>& shapes) {
    std::mt19937 random(5);
    HandTensors tensors;
    for (const auto& [name, shape] : shapes) {
        HandTensor& tensor = tensors[name];
        tensor.shape = shape;
        for (int64_t i = 0; i < NumElements(shape); ++i) {
            tensor.values.push_back(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
        }
    }
    return tensors;
}

Row RowOf(const HandTensor& table, size_t row) {
    const auto width = static_cast<size_t>(table.shape.back());
    const auto first = table.values.begin() + static_cast<std::ptrdiff_t>(row * width);
    return {first, first + static_cast<std::ptrdiff_t>(width)};
}

/// y_o = sum_i x_i W[o, i]
Rows Linear(const Rows& x, const HandTensor& weight) {
    Rows y(x.size(), Row(static_cast<size_t>(weight.shape[0])));
    for (size_t t = 0; t < x.size(); ++t) {
        for (size_t o = 0; o < y[t].size(); ++o) {
            for (size_t i = 0; i < x[t].size(); ++i) {
                y[t][o] += x[t][i] * static_cast<double>(weight.values[o * x[t].size() + i]);
            }
        }
    }
    return y;
}

/// y_o = b_o + sum_i x_i W[i, o]
Rows Conv1D(const Rows& x, const HandTensor& weight, const HandTensor& bias) {
    Rows y(x.size(), RowOf(bias, 0));
    for (size_t t = 0; t < x.size(); ++t) {
        for (size_t i = 0; i < x[t].size(); ++i) {
            for (size_t o = 0; o < y[t].size(); ++o) {
                y[t][o] += x[t][i] * static_cast<double>(weight.values[i * y[t].size() + o]);
            }
        }
    }
    return y;
}

void Add(Rows& x, const Rows& y) {
    for (size_t t = 0; t < x.size(); ++t) {
        std::transform(x[t].begin(), x[t].end(), y[t].begin(), x[t].begin(), std::plus<>());
    }
}

/// Columns [begin, end) of each row.
Rows Part(const Rows& x, size_t begin, size_t end) {
    Rows part;
    for (const Row& row : x) {
        part.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(begin),
                          row.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return part;
}

Rows Attention(const Rows& q, const Rows& k, const Rows& v) {
    const size_t group = q[0].size() / k[0].size();  // heads that share keys and values
    Rows y(q.size(), Row(q[0].size()));
    for (size_t head = 0; head < kHeads; ++head) {
        const size_t own = head * kHeadDim;
        const size_t shared = head / group * kHeadDim;
        for (size_t t = 0; t < q.size(); ++t) {
            Row weights;
            double sum = 0.0;
            for (size_t s = 0; s <= t; ++s) {
                double score = 0.0;
                for (size_t j = 0; j < kHeadDim; ++j) {
                    score += q[t][own + j] * k[s][shared + j];
                }
                weights.push_back(std::exp(score / std::sqrt(static_cast<double>(kHeadDim))));
                sum += weights.back();
            }
            for (size_t s = 0; s <= t; ++s) {
                for (size_t j = 0; j < kHeadDim; ++j) {
                    y[t][own + j] += weights[s] / sum * v[s][shared + j];
                }
            }
        }
    }
    return y;
}

/// Of GPT-2 with a bias; of LLaMA, without one, the mean stays.
Rows Norm(Rows x, const HandTensor& weight, const HandTensor* bias) {
    for (Row& row : x) {
        const auto count = static_cast<double>(row.size());
        double mean = 0.0;
        for (const double value : row) {
            mean += bias == nullptr ? 0.0 : value / count;
        }
        double variance = 0.0;
        for (const double value : row) {
            variance += (value - mean) * (value - mean) / count;
        }
        for (size_t c = 0; c < row.size(); ++c) {
            row[c] = (row[c] - mean) / std::sqrt(variance + 1e-5) * static_cast<double>(weight.values[c]) +
                     (bias == nullptr ? 0.0 : static_cast<double>(bias->values[c]));
        }
    }
    return x;
}

void Gelu(Rows& x) {
    for (Row& row : x) {
        for (double& value : row) {
            value *= 0.5 * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (value + 0.044715 * value * value * value)));
        }
    }
}

/// Numbers j and j + kHeadDim / 2 of a head rotate together.
void RotateHalves(Rows& x, double theta) {
    constexpr size_t kHalf = kHeadDim / 2;
    for (size_t t = 0; t < x.size(); ++t) {
        for (size_t head = 0; head < x[t].size(); head += kHeadDim) {
            for (size_t j = 0; j < kHalf; ++j) {
                const double angle =
                    static_cast<double>(t) * std::pow(theta, -static_cast<double>(j) / static_cast<double>(kHalf));
                const double first = x[t][head + j];
                const double second = x[t][head + kHalf + j];
                x[t][head + j] = first * std::cos(angle) - second * std::sin(angle);
                x[t][head + kHalf + j] = second * std::cos(angle) + first * std::sin(angle);
            }
        }
    }
}

void ExpectLogits(ModelSpec (*make_model)(const ProgramOptions&), const nlohmann::json& config,
                  const HandTensors& tensors, const Rows& wanted) {
    const TemporaryFolder folder;
    checkpoint::test::WriteFolder(folder.File("model"), config, tensors);
    ProgramOptions options;
    options.hf_dir = folder.File("model");
    const ModelSpec model = make_model(options);
    const Device device = MakeCpuDevice();
    const std::shared_ptr<nn::Module> net =
        model.build({.begin = 0, .end = model.num_layers, .num_layers = model.num_layers},
                    std::make_shared<nn::DropoutPosition>(), device);
    LoadWeights(*model.weights, *net);
    std::vector<int32_t> ids;
    for (size_t t = 0; t < kPositions; ++t) {
        ids.push_back(TokenAt(t));
    }
    const autograd::NoGradGuard no_grad;
    const std::shared_ptr<Tensor> logits =
        net->Forward({Tensor::FromVector(ids, {1, static_cast<int64_t>(kPositions)}, device)})[0];
    const std::vector<float> values = logits->ToVector<float>();
    const auto width = static_cast<size_t>(logits->shape().back());
    for (size_t t = 0; t < kPositions; ++t) {
        for (size_t token = 0; token < kVocab; ++token) {
            ASSERT_NEAR(static_cast<double>(values[t * width + token]), wanted[t][token],
                        kTolerance * (1.0 + std::abs(wanted[t][token])))
                << "position " << t << ", token " << token;
        }
    }
}

// bugs.csv O79
TEST(HfLogits, Gpt2FollowsTheFormulasAtEveryPosition) {
    constexpr int64_t c = kChannels;
    std::map<std::string, Shape> shapes = {
        {"wte.weight", {kVocab, c}}, {"wpe.weight", {kPositions, c}}, {"ln_f.weight", {c}}, {"ln_f.bias", {c}}};
    for (size_t layer = 0; layer < kLayers; ++layer) {
        const std::string prefix = "h." + std::to_string(layer) + ".";
        const std::map<std::string, Shape> matrices = {
            {"attn.c_attn", {c, 3 * c}}, {"attn.c_proj", {c, c}}, {"mlp.c_fc", {c, 4 * c}}, {"mlp.c_proj", {4 * c, c}}};
        for (const auto& [name, shape] : matrices) {
            shapes[prefix + name + ".weight"] = shape;
            shapes[prefix + name + ".bias"] = {shape[1]};
        }
        for (const std::string norm : {"ln_1", "ln_2"}) {
            shapes[prefix + norm + ".weight"] = {c};
            shapes[prefix + norm + ".bias"] = {c};
        }
    }
    const HandTensors tensors = RandomTensors(shapes);
    const auto norm = [&](const Rows& x, const std::string& name) {
        return Norm(x, tensors.at(name + ".weight"), &tensors.at(name + ".bias"));
    };
    const auto conv = [&](const Rows& x, const std::string& name) {
        return Conv1D(x, tensors.at(name + ".weight"), tensors.at(name + ".bias"));
    };
    Rows x;
    Rows positions;
    for (size_t t = 0; t < kPositions; ++t) {
        x.push_back(RowOf(tensors.at("wte.weight"), static_cast<size_t>(TokenAt(t))));
        positions.push_back(RowOf(tensors.at("wpe.weight"), t));
    }
    Add(x, positions);
    for (size_t layer = 0; layer < kLayers; ++layer) {
        const std::string prefix = "h." + std::to_string(layer) + ".";
        const Rows qkv = conv(norm(x, prefix + "ln_1"), prefix + "attn.c_attn");
        Add(x, conv(Attention(Part(qkv, 0, kChannels), Part(qkv, kChannels, 2 * kChannels),
                              Part(qkv, 2 * kChannels, 3 * kChannels)),
                    prefix + "attn.c_proj"));
        Rows hidden = conv(norm(x, prefix + "ln_2"), prefix + "mlp.c_fc");
        Gelu(hidden);
        Add(x, conv(hidden, prefix + "mlp.c_proj"));
    }
    const nlohmann::json config = {{"model_type", "gpt2"}, {"n_layer", kLayers},   {"n_head", kHeads},
                                   {"n_embd", c},          {"vocab_size", kVocab}, {"n_positions", kPositions}};
    ExpectLogits(gpt2::MakeModel, config, tensors, Linear(norm(x, "ln_f"), tensors.at("wte.weight")));
}

// bugs.csv O80
TEST(HfLogits, LlamaFollowsTheFormulasAtEveryPosition) {
    constexpr int64_t c = kChannels;
    constexpr int64_t kv = 2 * kHeadDim;
    constexpr int64_t hidden_size = 20;
    constexpr double theta = 50.0;
    std::map<std::string, Shape> shapes = {
        {"model.embed_tokens.weight", {kVocab, c}}, {"model.norm.weight", {c}}, {"lm_head.weight", {kVocab, c}}};
    for (size_t layer = 0; layer < kLayers; ++layer) {
        const std::map<std::string, Shape> weights = {
            {"input_layernorm", {c}},           {"self_attn.q_proj", {c, c}},
            {"self_attn.k_proj", {kv, c}},      {"self_attn.v_proj", {kv, c}},
            {"self_attn.o_proj", {c, c}},       {"post_attention_layernorm", {c}},
            {"mlp.up_proj", {hidden_size, c}},  {"mlp.gate_proj", {hidden_size, c}},
            {"mlp.down_proj", {c, hidden_size}}};
        for (const auto& [name, shape] : weights) {
            shapes["model.layers." + std::to_string(layer) + "." + name + ".weight"] = shape;
        }
    }
    const HandTensors tensors = RandomTensors(shapes);
    Rows x;
    for (size_t t = 0; t < kPositions; ++t) {
        x.push_back(RowOf(tensors.at("model.embed_tokens.weight"), static_cast<size_t>(TokenAt(t))));
    }
    for (size_t layer = 0; layer < kLayers; ++layer) {
        const auto weight = [&](const std::string& name) -> const HandTensor& {
            return tensors.at("model.layers." + std::to_string(layer) + "." + name + ".weight");
        };
        const Rows before = Norm(x, weight("input_layernorm"), nullptr);
        Rows q = Linear(before, weight("self_attn.q_proj"));
        Rows k = Linear(before, weight("self_attn.k_proj"));
        RotateHalves(q, theta);
        RotateHalves(k, theta);
        Add(x, Linear(Attention(q, k, Linear(before, weight("self_attn.v_proj"))), weight("self_attn.o_proj")));
        const Rows between = Norm(x, weight("post_attention_layernorm"), nullptr);
        const Rows up = Linear(between, weight("mlp.up_proj"));
        Rows hidden = Linear(between, weight("mlp.gate_proj"));
        for (size_t t = 0; t < kPositions; ++t) {
            for (size_t i = 0; i < hidden[t].size(); ++i) {
                hidden[t][i] *= up[t][i] / (1.0 + std::exp(-hidden[t][i]));
            }
        }
        Add(x, Linear(hidden, weight("mlp.down_proj")));
    }
    const nlohmann::json config = {{"model_type", "llama"},
                                   {"vocab_size", kVocab},
                                   {"hidden_size", c},
                                   {"intermediate_size", hidden_size},
                                   {"num_hidden_layers", kLayers},
                                   {"num_attention_heads", kHeads},
                                   {"num_key_value_heads", 2},
                                   {"max_position_embeddings", kPositions},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", theta}};
    const Rows last = Norm(x, tensors.at("model.norm.weight"), nullptr);
    ExpectLogits(llama3::MakeModel, config, tensors, Linear(last, tensors.at("lm_head.weight")));
}

}  // namespace
}  // namespace infini_train::test
