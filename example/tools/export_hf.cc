#include <memory>
#include <string>
#include <variant>

#include "gflags/gflags.h"

#include "example/tools/export_source.h"
#include "infini_train/include/checkpoint/hf_export.h"
#include "infini_train/include/checkpoint/hf_gpt2.h"
#include "infini_train/include/checkpoint/hf_llama.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

DEFINE_int64(max_shard_bytes, 5'000'000'000, "of the tensors in one file; a larger model is written as several files");

namespace infini_train {
namespace {

constexpr char kUsage[] =
    "Writes a model as a folder in Hugging Face's format: config.json and model.safetensors.\n\n"
    "  export_hf --llmc_filepath weights.bin --output folder\n"
    "  export_hf --load checkpoints --output folder --dtype bfloat16\n";

void Write(const ExportSource& source, const std::string& output) {
    if (FLAGS_max_shard_bytes < 1) {
        throw Error({.where = "--max_shard_bytes",
                     .what = "out of range",
                     .got = StrCat(FLAGS_max_shard_bytes),
                     .wanted = "at least 1"});
    }
    const checkpoint::HfExportOptions options = {.dtype = source.dtype,
                                                 .max_shard_bytes = static_cast<uint64_t>(FLAGS_max_shard_bytes)};
    if (const auto* gpt2 = std::get_if<checkpoint::HfGpt2Config>(&source.config); gpt2 != nullptr) {
        checkpoint::ExportHf(output, checkpoint::HfGpt2(*gpt2), *source.weights, options);
    } else {
        checkpoint::ExportHf(output, checkpoint::HfLlama(std::get<checkpoint::HfLlamaConfig>(source.config)),
                             *source.weights, options);
    }
}

}  // namespace
}  // namespace infini_train

int main(int argc, char** argv) {
    return infini_train::RunExport(argc, argv, infini_train::kUsage, {"max_shard_bytes"}, infini_train::Write);
}
