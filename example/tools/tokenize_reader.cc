#include "example/tools/tokenize_reader.h"

#include <algorithm>
#include <utility>

#include "example/tools/tokenize_cut.h"
#include "infini_train/include/common/error.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/core/random.h"

namespace infini_train {
namespace {

constexpr size_t kPieceBytes =
    128;  // what a piece takes besides its text, so that a million short ones are not one batch

bool IsBlank(std::string_view line) {
    return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

TextReader::TextReader(std::vector<TextInput> inputs, const Options& options)
    : inputs_(std::move(inputs)), options_(options) {
    for (const TextInput& input : inputs_) {
        total_bytes_ += input.size_bytes;
    }
    tail_begin_bytes_ = static_cast<uint64_t>(static_cast<double>(total_bytes_) * (1.0 - options.val_fraction));
}

std::vector<TextPiece> TextReader::Next() {
    std::vector<TextPiece> pieces;
    size_t size_bytes = 0;
    while (size_bytes < options_.batch_bytes) {
        if (file_ == nullptr) {
            if (next_input_ == inputs_.size()) {
                break;
            }
            Open(inputs_[next_input_++]);
        }
        std::optional<TextPiece> piece = is_json_lines_ ? NextLine() : NextPart();
        if (!piece.has_value()) {
            file_.reset();
            continue;
        }
        size_bytes += piece->text.size() + kPieceBytes;
        pieces.push_back(std::move(*piece));
    }
    return pieces;
}

void TextReader::Open(const TextInput& input) {
    file_ = std::make_unique<ReadOnlyFile>(input.path);
    is_json_lines_ = input.is_json_lines;
    file_offset_ = 0;
    num_lines_ = 0;
    buffer_.clear();
    begin_ = 0;
    if (!is_json_lines_) {
        BeginDocument();
    }
}

void TextReader::BeginDocument() {
    // The n-th of a stream of numbers in [0, 1).
    const RandomStream random = {.seed = 0, .stream = StreamOf("documents for validation")};
    is_chosen_ = static_cast<double>(Uniform(random, static_cast<uint64_t>(num_documents_))) < options_.val_fraction;
    ++num_documents_;
    begins_document_ = true;
}

std::optional<TextPiece> TextReader::NextPart() {
    size_t first_place = 1;  // those before it are no cuts
    for (;;) {
        if (!is_at_end() && buffered().size() < options_.batch_bytes) {
            Fill();
            continue;
        }
        const std::string_view text = buffered();
        if (is_at_end()) {
            return text.empty() ? std::nullopt : std::optional(TakePart(text.size()));
        }
        for (size_t place = text.size() - 1; place >= first_place; --place) {
            if (IsTextCut(text, place)) {
                return TakePart(place);
            }
        }
        if (text.size() >= options_.max_piece_bytes) {
            throw Error({.where = file_->path(),
                         .what = StrCat("no blank or line end after a letter where this text could be cut, for ",
                                        text.size(), " bytes from byte ", file_offset_ - text.size()),
                         .wanted = StrCat("one in ", options_.max_piece_bytes, " bytes; is it text?")});
        }
        first_place = text.size();
        Fill();
    }
}

std::optional<TextPiece> TextReader::NextLine() {
    size_t searched = 0;
    for (;;) {
        const size_t end = buffered().find('\n', searched);
        if (end == std::string_view::npos && !is_at_end()) {
            searched = buffered().size();
            if (searched >= options_.max_piece_bytes) {
                throw Error({.where = StrCat(file_->path(), ":", num_lines_ + 1),
                             .what = "the line is too long",
                             .got = StrCat("more than ", searched, " bytes"),
                             .wanted = StrCat("at most ", options_.max_piece_bytes)});
            }
            Fill();
            continue;
        }
        const std::string_view line = buffered().substr(0, end);
        if (line.empty() && end == std::string_view::npos) {
            return std::nullopt;
        }
        ++num_lines_;
        const size_t size_bytes = line.size() + (end == std::string_view::npos ? 0 : 1);
        if (IsBlank(line)) {
            Skip(size_bytes);
            searched = 0;
            continue;
        }
        BeginDocument();
        TextPiece piece = {.text = std::string(line),
                           .json_where = StrCat(file_->path(), ":", num_lines_),
                           .begins_document = true,
                           .is_validation = IsValidation()};
        Skip(size_bytes);
        return piece;
    }
}

TextPiece TextReader::TakePart(size_t size_bytes) {
    const std::string_view text = buffered();
    if (options_.val_split == ValSplit::kTail && tail_begin_bytes_ > position_bytes_) {
        for (size_t place = tail_begin_bytes_ - position_bytes_; place < size_bytes; ++place) {
            if (IsTextCut(text, place)) {
                size_bytes = place;
            }
        }
    }
    TextPiece piece = {.text = std::string(text.substr(0, size_bytes)),
                       .begins_document = std::exchange(begins_document_, false),
                       .is_validation = IsValidation()};
    Skip(size_bytes);
    return piece;
}

bool TextReader::IsValidation() const {
    switch (options_.val_split) {
        case ValSplit::kNone:
            return false;
        case ValSplit::kTail:
            return position_bytes_ >= tail_begin_bytes_;
        case ValSplit::kDocuments:
            return is_chosen_;
    }
    return false;
}

void TextReader::Fill() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const size_t size_bytes = std::min<uint64_t>(options_.batch_bytes, file_->size_bytes() - file_offset_);
    const size_t before = buffer_.size();
    buffer_.resize(before + size_bytes);
    file_->Read(file_offset_, buffer_.data() + before, size_bytes);
    file_offset_ += size_bytes;
}

void TextReader::Skip(size_t size_bytes) {
    begin_ += size_bytes;
    position_bytes_ += size_bytes;
}

}  // namespace infini_train
