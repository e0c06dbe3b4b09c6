#include "infini_train/include/data/row_order.h"

#include <bit>

#include "glog/logging.h"

namespace infini_train::data {
namespace {

// Four make a good permutation of many rows. The more there are, the less a few rows, of which a half has a bit or two,
// keep of their order.
constexpr uint64_t kNumRounds = 12;

uint64_t Mask(int num_bits) {
    return (uint64_t{1} << num_bits) - 1;
}

}  // namespace

RowOrder::RowOrder(int64_t num_rows, uint64_t seed, int64_t epoch)
    : num_rows_(num_rows),
      random_{.seed = seed, .stream = Combine(StreamOf("row order"), static_cast<uint64_t>(epoch))} {
    CHECK(num_rows > 0 && epoch >= 0) << "order of " << num_rows << " rows in epoch " << epoch;
    const int num_bits = std::bit_width(static_cast<uint64_t>(num_rows - 1));
    num_low_bits_ = (num_bits + 1) / 2;
    num_high_bits_ = num_bits - num_low_bits_;
}

int64_t RowOrder::operator()(int64_t i) const {
    CHECK(0 <= i && i < num_rows_) << "row " << i << " of " << num_rows_;
    // A permutation's cycle comes back to where it began, so it comes back inside: after less than two steps on
    // average.
    uint64_t value = Scramble(static_cast<uint64_t>(i));
    while (value >= static_cast<uint64_t>(num_rows_)) {
        value = Scramble(value);
    }
    return static_cast<int64_t>(value);
}

uint64_t RowOrder::Scramble(uint64_t value) const {
    uint64_t low = value & Mask(num_low_bits_);
    uint64_t high = value >> num_low_bits_;
    for (uint64_t round = 0; round < kNumRounds; round += 2) {
        // A half has at most 32 bits.
        low ^= Philox(random_, (round << 32) | high)[0] & Mask(num_low_bits_);
        high ^= Philox(random_, ((round + 1) << 32) | low)[0] & Mask(num_high_bits_);
    }
    return (high << num_low_bits_) | low;
}

}  // namespace infini_train::data
