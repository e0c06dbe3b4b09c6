#include "example/tools/tokenize_shards.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <set>
#include <sstream>
#include <system_error>

#include "infini_train/include/common/atomic_file.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"

namespace infini_train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNumDigits = 6;                                     // as llm.c's scripts name shards
constexpr int64_t kMaxShards = 999999;                               // more would not sort as they follow each other
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();  // what the header of a file can say

}  // namespace

TokenShards::TokenShards(const Options& options) : options_(options) {
    // At once, so that a place where none can be is found before the work is done.
    shards_.push_back(std::make_unique<data::TokenFileWriter>(ShardPath(1), options_.kind));
}

std::string TokenShards::ShardPath(int64_t number) const {
    if (options_.shard_tokens == 0) {
        return options_.path;
    }
    const fs::path path(options_.path);
    std::ostringstream name;
    name << path.stem().string() << '_' << std::setfill('0') << std::setw(kNumDigits) << number
         << path.extension().string();
    return (path.parent_path() / name.str()).string();
}

void TokenShards::Append(std::span<const int32_t> tokens, bool begins_document) {
    separator_is_due_ = separator_is_due_ || (begins_document && num_tokens_ > 0);
    if (tokens.empty()) {
        return;
    }
    if (separator_is_due_ && options_.separator.has_value()) {
        Write(std::span(&*options_.separator, 1));
    }
    separator_is_due_ = false;
    Write(tokens);
}

void TokenShards::Write(std::span<const int32_t> tokens) {
    while (!tokens.empty()) {
        const int64_t limit = options_.shard_tokens == 0 ? kMaxTokens : options_.shard_tokens;
        if (shards_.back()->num_tokens() == limit) {
            const auto number = static_cast<int64_t>(shards_.size()) + 1;
            if (options_.shard_tokens == 0 || number > kMaxShards) {
                throw Error({.where = options_.path,
                             .what = options_.shard_tokens == 0 ? "too many tokens for one file" : "too many shards",
                             .got = StrCat("more than ", num_tokens_, " tokens"),
                             .wanted = options_.shard_tokens == 0 ? "several files: --shard_tokens 100000000"
                                                                  : "a larger --shard_tokens"});
            }
            shards_.push_back(std::make_unique<data::TokenFileWriter>(ShardPath(number), options_.kind));
        }
        const int64_t room = limit - shards_.back()->num_tokens();
        const auto count = static_cast<size_t>(std::min(room, static_cast<int64_t>(tokens.size())));
        shards_.back()->Append(tokens.first(count));
        num_tokens_ += static_cast<int64_t>(count);
        tokens = tokens.subspan(count);
    }
}

void TokenShards::Finish() {
    for (const auto& shard : shards_) {
        shard->Finish();
    }
}

void TokenShards::Commit() {
    for (const auto& shard : shards_) {
        shard->Commit();
    }
    if (options_.shard_tokens > 0) {
        RemoveOlderShards();
    }
}

void TokenShards::RemoveOlderShards() {
    const fs::path last(ShardPath(static_cast<int64_t>(shards_.size())));
    const std::string last_name = last.filename().string();
    const std::string prefix = fs::path(options_.path).stem().string() + "_";
    std::set<std::string> names;  // a killed run may have left only the temporary file of a shard
    std::error_code error;
    fs::directory_iterator entry(last.has_parent_path() ? last.parent_path() : fs::path("."), error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const std::string name = entry->path().filename().string().substr(0, last_name.size());
        const bool is_shard = name.size() == last_name.size() && name.starts_with(prefix) &&
                              name.find_first_not_of("0123456789", prefix.size()) == prefix.size() + kNumDigits &&
                              name.substr(prefix.size() + kNumDigits) == last.extension().string();
        if (is_shard && name > last_name) {
            names.insert(name);
        }
    }
    for (const std::string& name : names) {
        const fs::path path = last.parent_path() / name;
        RemoveAbandonedFiles(path.string());
        if (fs::remove(path, error)) {
            removed_paths_.push_back(path.string());
        }
    }
}

std::string TokenShards::Summary() const {
    std::string lines;
    for (const auto& shard : shards_) {
        lines += StrCat(shard->path(), ": ", shard->num_tokens(), " tokens, ", shard->size_bytes(), " bytes\n");
    }
    for (const std::string& path : removed_paths_) {
        lines += StrCat(path, ": removed, a shard of an earlier and longer output\n");
    }
    return lines;
}

}  // namespace infini_train
