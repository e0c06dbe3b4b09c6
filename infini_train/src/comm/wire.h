#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace infini_train::comm {

// Numbers travel as they lie in memory.
static_assert(std::endian::native == std::endian::little, "a host of the other byte order needs a conversion here");

/// Numbers and texts, one after the other, as bytes.
class WireWriter {
 public:
    WireWriter& Number(uint32_t number) {
        char bytes[sizeof(number)];
        std::memcpy(bytes, &number, sizeof(number));
        bytes_.append(bytes, sizeof(number));
        return *this;
    }

    WireWriter& Text(std::string_view text) {
        Number(static_cast<uint32_t>(text.size()));
        bytes_ += text;
        return *this;
    }

    const std::string& bytes() const { return bytes_; }

 private:
    std::string bytes_;
};

/// Reads what a WireWriter wrote; nothing where the bytes end too early. They may come from a stranger.
class WireReader {
 public:
    explicit WireReader(std::string_view bytes) : rest_(bytes) {}

    std::optional<uint32_t> Number() {
        uint32_t number = 0;
        if (rest_.size() < sizeof(number)) {
            return std::nullopt;
        }
        std::memcpy(&number, rest_.data(), sizeof(number));
        rest_.remove_prefix(sizeof(number));
        return number;
    }

    std::optional<std::string> Text() {
        const std::optional<uint32_t> size = Number();
        if (!size.has_value() || *size > rest_.size()) {
            return std::nullopt;
        }
        std::string text(rest_.substr(0, *size));
        rest_.remove_prefix(*size);
        return text;
    }

    std::string_view rest() const { return rest_; }

 private:
    std::string_view rest_;
};

}  // namespace infini_train::comm
