#include "infini_train/include/checkpoint/llmc_llama3.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/llmc_header.h"
#include "infini_train/src/checkpoint/llmc_layout.h"

namespace infini_train::checkpoint {
namespace {

constexpr float kDefaultNormEps = 1e-5f;
constexpr size_t kCompareBytes = size_t{1} << 18;
constexpr int64_t kMaxMultipleOf = int64_t{1} << 20;
constexpr int32_t kMinTheta = 1000;
constexpr int32_t kMaxTheta = 100000000;

template <typename T>
bool IsWithin(T value, T min, T max) {
    return min <= value && value <= max;  // false for NaN
}

/// Whether words 8, 10 and 11 are the bits of floats; integers otherwise. No set of words is both.
bool HasFloatWords(const LlmcHeader& words) {
    if (IsWithin(words.FloatWord(8), 0.5f, 8.0f) && IsWithin(words.FloatWord(10), 1e-8f, 1e-3f) &&
        IsWithin(words.FloatWord(11), static_cast<float>(kMinTheta), static_cast<float>(kMaxTheta))) {
        return true;
    }
    if (IsWithin(words.word(8), 0, 8) && words.word(10) == 0 && IsWithin(words.word(11), kMinTheta, kMaxTheta)) {
        return false;
    }
    throw Error({.where = words.path(),
                 .what = "header words 8, 10 and 11 (MLP multiplier, norm_eps, rope_theta) make no sense",
                 .got = StrCat("integers ", words.word(8), ", ", words.word(10), ", ", words.word(11), "; floats ",
                               words.FloatWord(8), ", ", words.FloatWord(10), ", ", words.FloatWord(11)),
                 .wanted = StrCat("integers 0 to 8, 0, ", kMinTheta, " to ", kMaxTheta,
                                  "; or floats 0.5 to 8, 1e-8 to 1e-3, ", kMinTheta, " to ", kMaxTheta)});
}

void CheckHeads(const std::string& path, const LlmcLlama3Header& header) {
    if (header.num_channels % header.num_heads != 0) {
        throw Error({.where = path,
                     .what = "header words 5 and 7: the heads do not divide the channels",
                     .got = StrCat("num_heads ", header.num_heads, ", num_channels ", header.num_channels)});
    }
    if (header.num_heads % header.num_kv_heads != 0) {
        throw Error({.where = path,
                     .what = "header words 5 and 6: the key/value heads do not divide the heads",
                     .got = StrCat("num_heads ", header.num_heads, ", num_kv_heads ", header.num_kv_heads)});
    }
    const int64_t head_dim = header.num_channels / header.num_heads;
    if (head_dim % 2 != 0) {
        throw Error(
            {.where = path,
             .what = "header words 5 and 7: rotary pairs need an even head dimension",
             .got = StrCat(head_dim, " = num_channels ", header.num_channels, " / num_heads ", header.num_heads)});
    }
}

/// What the file has beside the three matrices of the MLP is known from the header; the rest is 3 C L elements for each
/// unit of the MLP's width.
int64_t HiddenSizeOf(const std::string& path, uint64_t size_bytes, const LlmcLlama3Header& header,
                     int64_t multiple_of) {
    LlmcLlama3Header without_mlp = header;
    without_mlp.hidden_size = 0;
    LlmcLlama3Header one_wide = header;
    one_wide.hidden_size = 1;
    const std::optional<uint64_t> fixed_bytes = CountBytes(Llama3Layout(without_mlp), header.dtype);
    const std::optional<uint64_t> one_wide_bytes = CountBytes(Llama3Layout(one_wide), header.dtype);
    if (!fixed_bytes.has_value() || !one_wide_bytes.has_value()) {
        throw Error({.where = path, .what = "the header asks for more than 2^64 bytes"});
    }
    const uint64_t data_bytes = size_bytes - kHeaderBytes;
    const uint64_t unit_bytes = *one_wide_bytes - *fixed_bytes;
    const bool is_short = data_bytes < *fixed_bytes;
    const uint64_t mlp_bytes = is_short ? 0 : data_bytes - *fixed_bytes;
    const uint64_t hidden_size = mlp_bytes / unit_bytes;
    if (hidden_size == 0 || mlp_bytes % unit_bytes != 0 || hidden_size % static_cast<uint64_t>(multiple_of) != 0 ||
        hidden_size > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
        throw Error({.where = path,
                     .what = is_short ? "the size is less than the header says: the file is cut short"
                                      : "the size gives no width of the MLP: the file is cut short or too long",
                     .got = StrCat(size_bytes, " bytes"),
                     .wanted = StrCat(kHeaderBytes, " + ", *fixed_bytes, " + ", unit_bytes,
                                      " x width, the width a multiple of ", multiple_of)});
    }
    return static_cast<int64_t>(hidden_size);
}

/// The width that a multiplier stands for: 8/3 of the channels, times it, rounded up. Whether the product is cut or
/// rounded to an integer first depends on the writer.
int64_t WidthOf(double multiplier, int64_t num_channels, int64_t multiple_of, double (*to_integer)(double)) {
    const auto width = static_cast<int64_t>(to_integer(multiplier * static_cast<double>(8 * num_channels / 3)));
    return (width + multiple_of - 1) / multiple_of * multiple_of;
}

/// Word 8 against the width that the file has. A file that was converted from a model with a width of its own says
/// anything here, and the size has decided already: a note, not an error.
void CheckMultiplier(const LlmcHeader& words, bool has_float_words, int64_t multiple_of, LlmcLlama3Header& header) {
    const int64_t channels = header.num_channels;
    // An integer was cut: the multiplier may be anything from it to the next.
    const double low = has_float_words ? static_cast<double>(words.FloatWord(8)) : words.word(8);
    const double high = has_float_words ? low : low + 1.0;
    const int64_t narrowest = WidthOf(low, channels, multiple_of, std::trunc);
    const int64_t widest = WidthOf(high, channels, multiple_of, std::round);
    if (!IsWithin(header.hidden_size, narrowest, widest)) {
        header.notes.push_back(StrCat("the MLP is ", header.hidden_size, " wide by the size of the file, ",
                                      narrowest == widest ? StrCat(narrowest) : StrCat(narrowest, " to ", widest),
                                      " by the multiplier in its header; the size is right"));
    }
}

bool HeadIsTied(const ReadOnlyFile& file, const LlmcLlama3Header& header) {
    const uint64_t size_bytes =
        static_cast<uint64_t>(header.vocab_size) * static_cast<uint64_t>(header.num_channels) * SizeOf(header.dtype);
    const uint64_t head_offset =
        file.size_bytes() - size_bytes;  // the head is the last tensor, the embedding the first
    std::vector<std::byte> embedding(static_cast<size_t>(std::min<uint64_t>(size_bytes, kCompareBytes)));
    std::vector<std::byte> head(embedding.size());
    for (uint64_t begin = 0; begin < size_bytes; begin += kCompareBytes) {
        const auto count = static_cast<size_t>(std::min<uint64_t>(size_bytes - begin, kCompareBytes));
        file.Read(kHeaderBytes + begin, embedding.data(), count);
        file.Read(head_offset + begin, head.data(), count);
        if (std::memcmp(embedding.data(), head.data(), count) != 0) {
            return false;
        }
    }
    return true;
}

}  // namespace

LlmcLlama3Header ParseLlama3Header(const LlmcHeader& words, uint64_t size_bytes) {
    words.CheckMagic(kLlama3Magic);
    // The magic is that of a debug state too, whose word 1 is the batch size and whose words from 3 on are zero.
    if (words.word(3) == 0) {
        throw Error({.where = words.path(),
                     .what = "header word 3, vocab_size, is 0: this is a LLaMA-3 debug state",
                     .wanted = "LLaMA-3 weights"});
    }
    const DataType dtype = words.ReadVersion();
    LlmcLlama3Header header = {.block_size = words.ReadField(2, "block_size", 1, kMaxBlockSize),
                               .vocab_size = words.ReadField(3, "vocab_size", 1, kMaxVocabSize),
                               .num_layers = words.ReadField(4, "num_layers", 1, kMaxLayers),
                               .num_heads = words.ReadField(5, "num_heads", 1, kMaxChannels),
                               .num_kv_heads = words.ReadField(6, "num_kv_heads", 1, kMaxChannels),
                               .num_channels = words.ReadField(7, "num_channels", 1, kMaxChannels),
                               .use_scaled_rope = words.ReadField(12, "use_scaled_rope", 0, 1) == 1,
                               .dtype = dtype};
    const int64_t multiple_of = words.ReadField(9, "multiple_of", 1, kMaxMultipleOf);
    // Not needed, but they are counts.
    for (const int index : {13, 14, 15}) {
        words.ReadField(index, index == 13 ? "max_gen_batch_size" : "version of the model", 0,
                        std::numeric_limits<int32_t>::max());
    }
    words.CheckUnused(16);
    CheckHeads(words.path(), header);
    header.hidden_size = HiddenSizeOf(words.path(), size_bytes, header, multiple_of);

    const bool has_float_words = HasFloatWords(words);
    if (has_float_words) {
        header.norm_eps = words.FloatWord(10);
        header.rope_theta = words.FloatWord(11);
    } else {
        header.norm_eps = kDefaultNormEps;
        header.rope_theta = static_cast<float>(words.word(11));
        header.notes.push_back("norm_eps is not stored in this dialect of the file format: 1e-5");
    }
    if (header.use_scaled_rope) {
        header.notes.push_back(
            "the rotary frequencies are scaled, by a factor that this file format cannot store (LLaMA-3.1: 8, 3.2: "
            "32)");
    }
    CheckMultiplier(words, has_float_words, multiple_of, header);
    return header;
}

LlmcLlama3File OpenLlmcLlama3(const std::string& path) {
    auto file = std::make_shared<const ReadOnlyFile>(path);
    LlmcLlama3Header header = ParseLlama3Header(LlmcHeader(*file), file->size_bytes());
    const LlmcLayout layout = Llama3Layout(header);
    header.head_is_tied = HeadIsTied(*file, header);
    WeightFile weights = MakeWeightFile(file, layout, header.dtype, kHeaderBytes);
    return {.header = std::move(header), .weights = std::move(weights)};
}

}  // namespace infini_train::checkpoint
