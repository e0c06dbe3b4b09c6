#include <cstdio>
#include <memory>
#include <string>
#include <variant>

#include "example/tools/export_source.h"
#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/checkpoint/hf_llama.h"
#include "infini_train/include/checkpoint/write_llmc.h"
#include "infini_train/include/core/device.h"
#include "infini_train/include/core/tensor.h"

namespace infini_train {
namespace {

constexpr char kUsage[] =
    "Writes a model as one file in llm.c's format.\n\n"
    "  export_llmc --hf_dir folder --output weights.bin\n"
    "  export_llmc --load checkpoints --output weights.bin --dtype bfloat16\n";

void Write(const ExportSource& source, const std::string& output) {
    const Device device = MakeCpuDevice();
    const checkpoint::TensorByName tensor_of = [&](const std::string& name) {
        const Shape& shape = source.weights->shape(name);
        const std::shared_ptr<Tensor> tensor = Tensor::Empty(shape, DataType::kFloat32, device);
        source.weights->ReadRows(name, 0, shape.at(0), tensor->data<float>());
        return tensor;
    };
    if (const auto* gpt2 = std::get_if<checkpoint::HfGpt2Config>(&source.config); gpt2 != nullptr) {
        checkpoint::WriteLlmcGpt2(output, checkpoint::LlmcHeaderOf(*gpt2, source.dtype), tensor_of);
        return;
    }
    const auto& llama = std::get<checkpoint::HfLlamaConfig>(source.config);
    checkpoint::WriteLlmcLlama3(output, checkpoint::LlmcHeaderOf(output, llama, source.dtype), tensor_of);
    if (llama.rope_scaling.has_value()) {
        std::printf(
            "note: the file says that the rotary frequencies are scaled, but not by how much: read it with "
            "--rope_scaling_factor %g\n",
            static_cast<double>(llama.rope_scaling->factor));
    }
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
    return infini_train::RunExport(argc, argv, infini_train::kUsage, {}, infini_train::Write);
}
