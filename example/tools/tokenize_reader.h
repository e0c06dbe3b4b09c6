#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "example/tools/tokenize_inputs.h"
#include "infini_train/include/common/file.h"

namespace infini_train {

/// What is kept for validation.
enum class ValSplit {
    kNone,
    kTail,       // the last part of the bytes of all files, from the first place on where text can be cut
    kDocuments,  // whole documents, chosen by a hash of their number: more input does not change the choice
};

/// A document, or a part of one that can be encoded by itself.
struct TextPiece {
    std::string text = {};        // for JSON lines, the line
    std::string json_where = {};  // file and line of a line of JSON; empty for text
    bool begins_document = false;
    bool is_validation = false;
};

/// Cuts the files into pieces, in order, without having more of them in memory than it must.
class TextReader {
 public:
    struct Options {
        ValSplit val_split = ValSplit::kNone;
        double val_fraction = 0.0;
        size_t batch_bytes = size_t{256} << 10;  // of pieces that are handed over together
        size_t max_piece_bytes = size_t{256} << 20;
    };

    TextReader(std::vector<TextInput> inputs, const Options& options);

    /// The next pieces; none at the end. Throws Error for a file that cannot be read and for one that is no text: a
    /// part of max_piece_bytes that has no line of JSON, or no place where it can be cut.
    std::vector<TextPiece> Next();

    /// Handed over so far.
    int64_t num_documents() const { return num_documents_; }
    uint64_t num_bytes() const { return position_bytes_; }
    /// Of all files.
    uint64_t total_bytes() const { return total_bytes_; }

 private:
    void Open(const TextInput& input);
    std::optional<TextPiece> NextPart();
    std::optional<TextPiece> NextLine();
    /// Appends some of the file to what is buffered; only before its end.
    void Fill();
    bool is_at_end() const { return file_offset_ == file_->size_bytes(); }
    std::string_view buffered() const { return std::string_view(buffer_).substr(begin_); }
    TextPiece TakePart(size_t size_bytes);
    void Skip(size_t size_bytes);
    bool IsValidation() const;
    void BeginDocument();

    std::vector<TextInput> inputs_;
    Options options_;
    uint64_t total_bytes_ = 0;
    uint64_t tail_begin_bytes_ = 0;

    size_t next_input_ = 0;
    std::unique_ptr<ReadOnlyFile> file_;  // null between files
    bool is_json_lines_ = false;
    uint64_t file_offset_ = 0;  // read so far
    int64_t num_lines_ = 0;     // of the file, so far
    std::string buffer_;        // its bytes from begin_ on are read and not handed over
    size_t begin_ = 0;
    uint64_t position_bytes_ = 0;  // of what comes next, in all files together
    int64_t num_documents_ = 0;
    bool begins_document_ = false;
    bool is_chosen_ = false;  // the current document is one for validation
};

}  // namespace infini_train
