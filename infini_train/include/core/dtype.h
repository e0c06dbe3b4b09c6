#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace infini_train {

enum class DataType : uint8_t { kFloat32, kBFloat16, kInt32, kInt64, kUInt8, kUInt16 };
inline constexpr int kNumDataTypes = 6;

/// Bytes of one element.
size_t SizeOf(DataType dtype);
/// "float32", "bfloat16", "int32", ...: as the flags and messages spell it.
std::string_view Name(DataType dtype);
inline bool IsFloat(DataType dtype) {
    return dtype == DataType::kFloat32 || dtype == DataType::kBFloat16;
}

/// The upper half of a float32. Widening is exact; narrowing rounds to nearest even and keeps NaN a NaN.
struct BFloat16 {
    uint16_t bits = 0;

    BFloat16() = default;
    explicit BFloat16(float value) {
        const uint32_t word = std::bit_cast<uint32_t>(value);
        const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
        // A NaN whose payload is in the low half would round to infinity: set the quiet bit instead.
        const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
        bits = static_cast<uint16_t>(is_nan ? (word >> 16) | 0x40u : rounded);
    }
    explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(BFloat16) == 2);

/// The DataType of a C++ element type.
template <typename T>
struct DataTypeOf;
template <>
struct DataTypeOf<float> {
    static constexpr DataType value = DataType::kFloat32;
};
template <>
struct DataTypeOf<BFloat16> {
    static constexpr DataType value = DataType::kBFloat16;
};
template <>
struct DataTypeOf<int32_t> {
    static constexpr DataType value = DataType::kInt32;
};
template <>
struct DataTypeOf<int64_t> {
    static constexpr DataType value = DataType::kInt64;
};
template <>
struct DataTypeOf<uint8_t> {
    static constexpr DataType value = DataType::kUInt8;
};
template <>
struct DataTypeOf<uint16_t> {
    static constexpr DataType value = DataType::kUInt16;
};

}  // namespace infini_train
