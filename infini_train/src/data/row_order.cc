#include "infini_train/include/data/row_order.h"

#include "glog/logging.h"

#include "infini_train/include/core/random.h"

namespace infini_train::data {
namespace {

constexpr int kRounds = 8;  // four make it look random to who sees a few places; the rest costs nothing beside a row

}  // namespace

RowOrder::RowOrder(int64_t num_rows, uint64_t seed, int64_t epoch)
    : num_rows_(static_cast<uint64_t>(num_rows)), seed_(seed), epoch_(static_cast<uint64_t>(epoch)) {
    CHECK(num_rows >= 0 && num_rows <= int64_t{1} << 60) << num_rows << " rows";
    CHECK_GE(epoch, 0);
    while (uint64_t{1} << (2 * half_bits_) < num_rows_) {
        ++half_bits_;
    }
}

int64_t RowOrder::operator()(int64_t index) const {
    CHECK(0 <= index && static_cast<uint64_t>(index) < num_rows_) << index << " of " << num_rows_ << " rows";
    auto row = static_cast<uint64_t>(index);
    // On average at most four times: the domain is less than four times the rows.
    do {
        row = Permute(row);
    } while (row >= num_rows_);
    return static_cast<int64_t>(row);
}

uint64_t RowOrder::Permute(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
        const RandomStream random = {
            .seed = seed_, .stream = Combine(Combine(StreamOf("rows"), epoch_), static_cast<uint64_t>(round))};
        const uint64_t mixed = left ^ (Philox(random, right)[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits_ | right;
}

}  // namespace infini_train::data
