#include "infini_train/include/checkpoint/debug_state.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "infini_train/include/common/checked_math.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/src/checkpoint/llmc_header.h"
#include "infini_train/src/checkpoint/llmc_layout.h"

namespace infini_train::checkpoint {
namespace {

constexpr int32_t kGpt2DebugStateVersion = 2;
constexpr int64_t kMaxBatchSize = int64_t{1} << 20;

/// Reads arrays one after the other.
class Cursor {
 public:
    explicit Cursor(const ReadOnlyFile& file) : file_(file) {}

    template <typename T>
    std::vector<T> Take(uint64_t count) {
        std::vector<T> values(static_cast<size_t>(count));
        file_.Read(offset_, values.data(), values.size() * sizeof(T));
        offset_ += values.size() * sizeof(T);
        return values;
    }
    uint64_t offset() const { return offset_; }

 private:
    const ReadOnlyFile& file_;
    uint64_t offset_ = kHeaderBytes;
};

void CheckIds(const std::string& path, const char* name, const std::vector<int32_t>& ids, int64_t vocab_size) {
    const auto outside =
        std::find_if(ids.begin(), ids.end(), [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; });
    if (outside != ids.end()) {
        throw Error({.where = path,
                     .what = StrCat(name, " ", outside - ids.begin(), " is not in the model's vocabulary"),
                     .got = StrCat("id ", *outside),
                     .wanted = StrCat("an id below ", vocab_size)});
    }
}

DebugState Read(std::shared_ptr<const ReadOnlyFile> file, int64_t batch_size, int64_t sequence_length,
                int64_t vocab_size, const LlmcLayout& layout) {
    // Both are at most 2^20: what could overflow begins with the logits.
    const auto num_tokens = static_cast<uint64_t>(batch_size * sequence_length);
    const std::optional<uint64_t> num_logits = CheckedMultiply(num_tokens, static_cast<uint64_t>(vocab_size));
    const std::optional<uint64_t> logits_bytes =
        num_logits.has_value() ? CheckedMultiply(*num_logits, sizeof(float)) : std::nullopt;
    const std::optional<uint64_t> gradient_bytes = CountBytes(layout, DataType::kFloat32);
    const uint64_t other_bytes = kHeaderBytes + 2 * num_tokens * sizeof(int32_t) + sizeof(float);
    std::optional<uint64_t> wanted_bytes;
    if (logits_bytes.has_value() && gradient_bytes.has_value()) {
        wanted_bytes = CheckedAdd(*logits_bytes, *gradient_bytes);
        wanted_bytes = wanted_bytes.has_value() ? CheckedAdd(*wanted_bytes, other_bytes) : std::nullopt;
    }
    CheckFileSize(*file, wanted_bytes);

    Cursor cursor(*file);
    std::vector<int32_t> inputs = cursor.Take<int32_t>(num_tokens);
    std::vector<int32_t> targets = cursor.Take<int32_t>(num_tokens);
    CheckIds(file->path(), "input", inputs, vocab_size);
    CheckIds(file->path(), "target", targets, vocab_size);
    std::vector<float> logits = cursor.Take<float>(*num_logits);
    const float loss = cursor.Take<float>(1)[0];
    return {.batch_size = batch_size,
            .sequence_length = sequence_length,
            .inputs = std::move(inputs),
            .targets = std::move(targets),
            .logits = std::move(logits),
            .loss = loss,
            .gradients = MakeWeightFile(std::move(file), layout, DataType::kFloat32, cursor.offset())};
}

}  // namespace

DebugState ReadGpt2DebugState(const std::string& path, const LlmcGpt2Header& header) {
    auto file = std::make_shared<const ReadOnlyFile>(path);
    const LlmcHeader words(*file);
    words.CheckMagic(kGpt2DebugStateMagic);
    words.ReadField(1, "version", kGpt2DebugStateVersion, kGpt2DebugStateVersion);
    const int64_t batch_size = words.ReadField(2, "batch size", 1, kMaxBatchSize);
    const int64_t sequence_length = words.ReadField(3, "sequence length", 1, header.block_size);
    words.CheckUnused(4);
    return Read(std::move(file), batch_size, sequence_length, header.vocab_size, Gpt2Layout(header));
}

DebugState ReadLlama3DebugState(const std::string& path, const LlmcLlama3Header& header) {
    auto file = std::make_shared<const ReadOnlyFile>(path);
    const LlmcHeader words(*file);
    words.CheckMagic(kLlama3Magic);
    if (words.word(3) != 0) {
        throw Error({.where = path,
                     .what = "header word 3 is not 0: these are LLaMA-3 weights",
                     .wanted = "a LLaMA-3 debug state"});
    }
    const int64_t batch_size = words.ReadField(1, "batch size", 1, kMaxBatchSize);
    const int64_t sequence_length = words.ReadField(2, "sequence length", 1, header.block_size);
    words.CheckUnused(3);
    return Read(std::move(file), batch_size, sequence_length, header.vocab_size, Llama3Layout(header));
}

}  // namespace infini_train::checkpoint
