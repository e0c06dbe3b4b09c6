#!/usr/bin/env bash
# Fails unless README.md and README.zh-CN.md say the same, and what the documents name is there:
#   both READMEs have the same code blocks but for comments, the same flags, links and tables of as many rows, and lead to each other;
#   every --flag in them and in docs/ is one of our programs or scripts, or is listed below;
#   every scripts/x and every docs/x.md that is named exists, and every script and document is in the README's list.
set -euo pipefail
cd "$(dirname "$0")/.."

english=README.md
chinese=README.zh-CN.md
documents=("$english" "$chinese" docs/*.md)
# Of cmake, ctest, timeout, compute-sanitizer and ncu; of our benchmarks; of torchrun, mpirun and Slurm.
foreign_flags=(--build --install --prefix --preset --test-dir --preserve-status --tool --nvtx --nvtx-include --metrics --launch-count
    --stages --rows
    --no-python --nnodes --nproc_per_node --rdzv_backend --rdzv_endpoint --master_addr --max_restarts --host --ntasks-per-node --wrap)

failed=0
fail() {
    echo "check_readme: $*" >&2
    failed=1
}

# The code of a document, without comments and blanks at the ends of lines.
code() { awk '/^```/ { inside = !inside; print; next } inside { sub(/ *(# .*)?$/, ""); print }' "$1"; }
flags() { grep -ohE -e '(^|[^[:alnum:]_-])--[a-z][a-z0-9_-]*' "$@" | grep -oE -e '--[a-z].*' | sort -u; }
# Of each table how many lines it has.
tables() { awk '/^\|/ { ++rows; next } rows { print rows; rows = 0 } END { if (rows) print rows }' "$1"; }
links() { grep -oE '\]\([^)]*\)' "$1" | grep -v 'README' | sort -u; }
# What is `so` in the text; it may go over the end of a line.
words() { awk '/^```/ { inside = !inside; next } !inside' "$1" | tr '\n' ' ' | grep -oE '`[^`]*`' | sort -u; }

# same WHAT FUNCTION: both READMEs have it alike.
same() {
    diff --label "$english" --label "$chinese" -U0 <("$2" "$english") <("$2" "$chinese") >&2 || fail "the READMEs differ in their $1"
}
for file in "$english" "$chinese"; do
    [ -n "$(code "$file")" ] && [ -n "$(flags "$file")" ] && [ -n "$(tables "$file")" ] && [ -n "$(links "$file")" ] ||
        fail "$file: no code, flags, tables or links were found in it"
done
same "code blocks" code
same flags flags
same "numbers of table rows" tables
same links links
same "commands and names in the text" words
grep -qF "]($chinese)" "$english" || fail "$english has no link to $chinese"
grep -qF "]($english)" "$chinese" || fail "$chinese has no link to $english"

# DEFINE_x(name, with --noname of a bool, and options of scripts.
known=$({
    find example -name '*.cc' -exec cat {} + | tr '\n' ' ' | grep -oE 'DEFINE_[a-z0-9]+\( *[a-z0-9_]+' | sed -E 's/DEFINE_bool\( *(.*)/--\1\n--no\1/; s/DEFINE_.*\( */--/'
    cat scripts/* | grep -ohE -e '--[a-z][a-z0-9_-]*'
    printf '%s\n' --help "${foreign_flags[@]}"
} | sort -u)
for file in "${documents[@]}"; do
    while read -r flag; do
        grep -qxF -e "$flag" <<<"$known" || fail "$file: there is no flag $flag"
    done < <(flags "$file")
    while read -r path; do
        [ -f "$path" ] || fail "$file: there is no $path"
    done < <(grep -oE '(scripts/[a-z0-9_]+\.(sh|py)|docs/[a-z0-9_]+\.md)' "$file" | sort -u)
    while read -r path; do
        [ -e "$(dirname "$file")/$path" ] || fail "$file: its link to $path leads nowhere"
    done < <(grep -oE '\]\([^)#:]*\)' "$file" | sed -E 's/^\]\((.*)\)$/\1/' | sort -u)
done
for path in scripts/*.sh scripts/*.py docs/*.md; do
    name=$(basename "${path%.*}")
    [ "$(grep -lF -e "${path##*/}" scripts/* | grep -cvxF -e "$path")" -eq 0 ] || continue  # another script's helper
    code "$english" | grep -qwF -e "$name" || fail "$english does not list $path"
done

[ "$failed" -eq 0 ] || exit 1
echo "check_readme: the READMEs agree, and what the documents name is there"
