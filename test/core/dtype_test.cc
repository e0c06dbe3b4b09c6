#include "infini_train/include/core/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace infini_train {
namespace {

float FromWord(uint32_t word) {
    return std::bit_cast<float>(word);
}

TEST(DataType, KnowsItsSizeAndName) {
    EXPECT_EQ(SizeOf(DataType::kFloat32), sizeof(float));
    EXPECT_EQ(SizeOf(DataType::kBFloat16), sizeof(BFloat16));
    EXPECT_EQ(SizeOf(DataType::kInt32), sizeof(int32_t));
    EXPECT_EQ(SizeOf(DataType::kInt64), sizeof(int64_t));
    EXPECT_EQ(SizeOf(DataType::kUInt8), sizeof(uint8_t));
    EXPECT_EQ(SizeOf(DataType::kUInt16), sizeof(uint16_t));
    EXPECT_EQ(Name(DataType::kFloat32), "float32");
    EXPECT_EQ(Name(DataType::kBFloat16), "bfloat16");
    EXPECT_EQ(Name(DataType::kInt32), "int32");
    EXPECT_EQ(Name(DataType::kInt64), "int64");
    EXPECT_EQ(Name(DataType::kUInt8), "uint8");
    EXPECT_EQ(Name(DataType::kUInt16), "uint16");
    EXPECT_TRUE(IsFloat(DataType::kBFloat16));
    EXPECT_FALSE(IsFloat(DataType::kUInt16));
}

TEST(BFloat16, KeepsEveryOneOfItsValues) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
        BFloat16 value;
        value.bits = static_cast<uint16_t>(bits);
        const float wide = static_cast<float>(value);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(wide)))) << bits;
        } else {
            EXPECT_EQ(BFloat16(wide).bits, bits);
        }
    }
}

TEST(BFloat16, RoundsToTheNearestAndATieToEven) {
    EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
    EXPECT_EQ(BFloat16(FromWord(0x3f807fff)).bits, 0x3f80) << "under the middle";
    EXPECT_EQ(BFloat16(FromWord(0x3f808000)).bits, 0x3f80) << "the middle, even below";
    EXPECT_EQ(BFloat16(FromWord(0x3f808001)).bits, 0x3f81) << "over the middle";
    EXPECT_EQ(BFloat16(FromWord(0x3f818000)).bits, 0x3f82) << "the middle, even above";
    EXPECT_EQ(BFloat16(FromWord(0xbf818000)).bits, 0xbf82) << "the sign takes no part";
    EXPECT_EQ(BFloat16(-0.0f).bits, 0x8000);
    EXPECT_EQ(BFloat16(FromWord(0x00008001)).bits, 0x0001) << "denormal numbers stay";
    EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80) << "over its largest value is infinity";
    EXPECT_EQ(BFloat16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(BFloat16, KeepsANaNWhosePayloadIsInTheLowHalf) {
    for (const uint32_t word : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7fc00000u}) {
        EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(FromWord(word))))) << std::hex << word;
    }
}

}  // namespace
}  // namespace infini_train
