#include "infini_train/include/checkpoint/llmc_gpt2.h"

#include <memory>
#include <optional>

#include "infini_train/include/common/checked_math.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/llmc_header.h"
#include "infini_train/src/checkpoint/llmc_layout.h"

namespace infini_train::checkpoint {

LlmcGpt2Header ParseGpt2Header(const LlmcHeader& words) {
    words.CheckMagic(kGpt2Magic);
    const DataType dtype = words.ReadVersion();
    const LlmcGpt2Header header = {.block_size = words.ReadField(2, "block_size", 1, kMaxBlockSize),
                                   .vocab_size = words.ReadField(3, "vocab_size", 1, kMaxVocabSize),
                                   .padded_vocab_size = words.ReadField(7, "padded_vocab_size", 1, kMaxVocabSize),
                                   .num_layers = words.ReadField(4, "num_layers", 1, kMaxLayers),
                                   .num_heads = words.ReadField(5, "num_heads", 1, kMaxChannels),
                                   .num_channels = words.ReadField(6, "num_channels", 1, kMaxChannels),
                                   .dtype = dtype};
    words.CheckUnused(8);
    if (header.vocab_size > header.padded_vocab_size) {
        throw Error({.where = words.path(),
                     .what = "header words 3 and 7: the vocabulary is larger than its padded size",
                     .got = StrCat("vocab_size ", header.vocab_size),
                     .wanted = StrCat("at most padded_vocab_size ", header.padded_vocab_size)});
    }
    if (header.num_channels % header.num_heads != 0) {
        throw Error({.where = words.path(),
                     .what = "header words 5 and 6: the heads do not divide the channels",
                     .got = StrCat("num_heads ", header.num_heads, ", num_channels ", header.num_channels)});
    }
    return header;
}

LlmcGpt2File OpenLlmcGpt2(const std::string& path) {
    auto file = std::make_shared<const ReadOnlyFile>(path);
    const LlmcGpt2Header header = ParseGpt2Header(LlmcHeader(*file));
    const LlmcLayout layout = Gpt2Layout(header);
    const std::optional<uint64_t> data_bytes = CountBytes(layout, header.dtype);
    CheckFileSize(*file, data_bytes.has_value() ? CheckedAdd(*data_bytes, kHeaderBytes) : std::nullopt);
    return {.header = header, .weights = MakeWeightFile(file, layout, header.dtype, kHeaderBytes)};
}

}  // namespace infini_train::checkpoint
