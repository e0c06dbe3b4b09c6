#include "example/tools/export_source.h"

#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>

#include "gflags/gflags.h"

#include "example/common/command_line.h"
#include "example/tools/model_flags.h"
#include "infini_train/include/checkpoint/checkpoint_reader.h"
#include "infini_train/include/checkpoint/hf_family.h"
#include "infini_train/include/checkpoint/llmc_gpt2.h"
#include "infini_train/include/checkpoint/llmc_llama3.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/error_text.h"

DEFINE_string(output, "", "where to write");
DEFINE_string(dtype, "", "float32 or bfloat16; empty: as the weights are stored");

namespace infini_train {
namespace {

using checkpoint::ModelFamily;

ExportSource OpenLlmc(const std::string& path) {
    if (checkpoint::FamilyOf(path) == ModelFamily::kGpt2) {
        const auto file = std::make_shared<const checkpoint::LlmcGpt2File>(checkpoint::OpenLlmcGpt2(path));
        return {.config = checkpoint::HfConfigOf(file->header),
                .weights = std::shared_ptr<const checkpoint::WeightSource>(file, &file->weights)};
    }
    const auto file = std::make_shared<const checkpoint::LlmcLlama3File>(checkpoint::OpenLlmcLlama3(path));
    return {.config = checkpoint::HfConfigOf(file->header, RopeScalingFactor()),
            .weights = std::shared_ptr<const checkpoint::WeightSource>(file, &file->weights),
            .notes = file->header.notes};
}

ExportSource OpenHf(const std::string& folder) {
    if (checkpoint::FamilyOf(folder) == ModelFamily::kGpt2) {
        const checkpoint::HfGpt2Folder files = checkpoint::OpenHfGpt2(folder);
        return {.config = files.config, .weights = files.weights};
    }
    const checkpoint::HfLlamaFolder files = checkpoint::OpenHfLlama(folder);
    return {.config = files.config, .weights = files.weights};
}

DataType ChosenDtype(const checkpoint::WeightSource& weights) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
        if (FLAGS_dtype == Name(dtype)) {
            return dtype;
        }
    }
    if (!FLAGS_dtype.empty()) {
        throw Error({.where = "--dtype", .what = "unknown value", .got = FLAGS_dtype, .wanted = "float32 or bfloat16"});
    }
    return weights.dtype();
}

/// A checkpoint whose files have no bit of another value than they were written with.
std::string SoundCheckpoint(const std::string& path) {
    const std::string folder = checkpoint::FindCheckpoint(path);
    checkpoint::VerifyChecksums(folder, /*part=*/0, /*num_parts=*/1);
    return folder;
}

ExportSource OpenSource() {
    CheckOneIsGiven({"llmc_filepath", "hf_dir", "load"});
    if (FLAGS_output.empty()) {
        throw Error({.where = "--output", .what = "needed: where to write (see --help)"});
    }
    ExportSource source = !FLAGS_llmc_filepath.empty() ? OpenLlmc(FLAGS_llmc_filepath)
                          : !FLAGS_hf_dir.empty()      ? OpenHf(FLAGS_hf_dir)
                                                       : OpenHf(SoundCheckpoint(FLAGS_load));
    source.dtype = ChosenDtype(*source.weights);
    return source;
}

}  // namespace

int RunExport(int argc, char** argv, const std::string& usage, const std::vector<std::string>& own_flags,
              void (*write)(const ExportSource& source, const std::string& output)) {
    try {
        CommandLine line = {.usage = usage,
                            .groups = {{"Weights", {"llmc_filepath", "hf_dir", "load", "rope_scaling_factor"}},
                                       {"Output", {"output", "dtype"}}}};
        std::vector<std::string>& output_flags = line.groups.back().flags;
        output_flags.insert(output_flags.end(), own_flags.begin(), own_flags.end());
        if (ReadCommandLine(std::span(argv, static_cast<size_t>(argc)).subspan(1), line).has_value()) {
            const ExportSource source = OpenSource();
            for (const std::string& note : source.notes) {
                std::printf("note: %s\n", note.c_str());
            }
            write(source, FLAGS_output);
            std::printf("%s: written as %s\n", FLAGS_output.c_str(), std::string(Name(source.dtype)).c_str());
        }
        return 0;
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return error.exit_code();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", ErrorText(error).c_str());
        return 1;
    }
}

}  // namespace infini_train
