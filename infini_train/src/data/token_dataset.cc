#include "infini_train/include/data/token_dataset.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>

#include "glog/logging.h"

#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/data/row_order.h"

namespace infini_train::data {
namespace {

std::vector<std::string> ShardPaths(const std::string& path_or_pattern) {
    struct stat status = {};
    const bool is_pattern = path_or_pattern.find_first_of("*?[") != std::string::npos;
    // A file may have a '[' in its name.
    if (!is_pattern || stat(path_or_pattern.c_str(), &status) == 0) {
        return {path_or_pattern};
    }
    glob_t matches = {};
    // glob would sort by the user's locale.
    const int result = glob(path_or_pattern.c_str(), GLOB_NOSORT, nullptr, &matches);
    const std::vector<std::string> unsorted(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    globfree(&matches);
    if (result != 0 || unsorted.empty()) {
        throw Error({.where = path_or_pattern, .what = "no file matches this pattern"});
    }
    std::vector<std::string> paths = unsorted;
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace

TokenDataset::TokenDataset(const std::string& path_or_pattern, int64_t sequence_length)
    : name_(path_or_pattern), sequence_length_(sequence_length), first_rows_{0} {
    CHECK_GT(sequence_length, 0) << path_or_pattern;
    for (const std::string& path : ShardPaths(path_or_pattern)) {
        shards_.emplace_back(path);
        const TokenFile& shard = shards_.back();
        if (shard.kind() != shards_.front().kind()) {
            throw Error({.where = path,
                         .what = StrCat("other kind of tokens than ", shards_.front().path()),
                         .got = std::string(Name(shard.kind())),
                         .wanted = std::string(Name(shards_.front().kind()))});
        }
        first_rows_.push_back(first_rows_.back() + (shard.num_tokens() - 1) / sequence_length);
    }
}

int64_t TokenDataset::num_tokens() const {
    int64_t num_tokens = 0;
    for (const TokenFile& shard : shards_) {
        num_tokens += shard.num_tokens();
    }
    return num_tokens;
}

void TokenDataset::CheckVocab(int64_t vocab_size) const {
    for (const TokenFile& shard : shards_) {
        shard.CheckVocab(vocab_size);
    }
}

void TokenDataset::CheckHasRows(int64_t num_rows) const {
    if (this->num_rows() < num_rows) {
        throw Error({.where = name_,
                     .what = "too few tokens for one step",
                     .got = StrCat(num_tokens(), " tokens, ", this->num_rows(), " rows of ", sequence_length_),
                     .wanted = StrCat("at least ", num_rows * sequence_length_ + 1, " tokens, ", num_rows, " rows")});
    }
}

DataPosition TokenDataset::StepPosition(const DataPosition& position, int64_t rows_per_step) const {
    CHECK(position.epoch >= 0 && position.row >= 0 && rows_per_step > 0)
        << name_ << ": row " << position.row << " of epoch " << position.epoch << ", steps of " << rows_per_step
        << " rows";
    CheckHasRows(rows_per_step);
    // A position of a longer epoch, from a run on other files, is past the end of this one.
    return position.row > num_rows() - rows_per_step ? DataPosition{.epoch = position.epoch + 1} : position;
}

DataPosition TokenDataset::NextPosition(const DataPosition& position, int64_t rows_per_step) const {
    DataPosition next = StepPosition(position, rows_per_step);
    next.row += rows_per_step;
    return next;
}

void TokenDataset::ReadStepRows(const DataPosition& position, int64_t rows_per_step, int64_t first_row,
                                int64_t num_rows, int32_t* inputs, int32_t* targets) const {
    CHECK(first_row >= 0 && num_rows >= 0 && num_rows <= rows_per_step - first_row)
        << name_ << ": rows from " << first_row << ", " << num_rows << " of them, of a step of " << rows_per_step;
    const DataPosition start = StepPosition(position, rows_per_step);
    if (!seed_.has_value()) {
        ReadRows(start.row + first_row, num_rows, inputs, targets);
        return;
    }
    const RowOrder order(this->num_rows(), *seed_, start.epoch);
    for (int64_t row = 0; row < num_rows; ++row) {
        ReadRows(order(start.row + first_row + row), 1, inputs + row * sequence_length_,
                 targets + row * sequence_length_);
    }
}

std::string TokenDataset::DropNote(int64_t rows_per_step) const {
    CHECK_GT(rows_per_step, 0) << name_;
    const int64_t steps = num_rows() / rows_per_step;
    // The last token of each shard is a target alone.
    const int64_t usable = num_tokens() - static_cast<int64_t>(shards_.size());
    const int64_t dropped = usable - steps * rows_per_step * sequence_length_;
    if (dropped == 0) {
        return "";
    }
    return StrCat(name_, ": ", dropped, " of ", num_tokens(), " tokens are in no step: an epoch is ", steps,
                  " steps of ", rows_per_step, " rows of ", sequence_length_, " tokens, and the rest begins no other");
}

void TokenDataset::ReadRows(int64_t first_row, int64_t num_rows, int32_t* inputs, int32_t* targets) const {
    CHECK(first_row >= 0 && num_rows >= 0 && num_rows <= this->num_rows() - first_row)
        << name_ << ": rows from " << first_row << ", " << num_rows << " of them, of " << this->num_rows();
    while (num_rows > 0) {
        const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), first_row);
        const auto shard = static_cast<size_t>(after - first_rows_.begin()) - 1;
        const int64_t num_here = std::min(num_rows, *after - first_row);
        const int64_t first_token = (first_row - first_rows_[shard]) * sequence_length_;
        const int64_t count = num_here * sequence_length_;
        shards_[shard].Read(first_token, count, inputs);
        shards_[shard].Read(first_token + 1, count, targets);
        first_row += num_here;
        num_rows -= num_here;
        inputs += count;
        targets += count;
    }
}

}  // namespace infini_train::data
