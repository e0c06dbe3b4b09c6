#!/usr/bin/env bash
# Installs build/ (or $INFINI_BUILD_DIR) into a temporary folder, and builds and runs example/minimal_pipeline there, with nothing of this tree:
# what a user of the library does. Every public header must be quiet under the warnings of a careful user. Build first (scripts/build.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

source=$PWD
build=$(realpath "${INFINI_BUILD_DIR:-build}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMP_WAIT_POLICY=passive  # a thread that waits leaves its core to whatever else runs here
unset LD_LIBRARY_PATH           # what is installed finds its library by itself

# quiet COMMAND...: its output only if it fails.
quiet() {
    "$@" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; echo "test_install: failed: $*" >&2; exit 1; }
}
fail() {
    echo "test_install: $*" >&2
    exit 1
}

quiet cmake --install "$build" --prefix "$folder/first"
mv "$folder/first" "$folder/prefix"  # an installed tree may be moved
packages=$(dirname "$(find "$folder/prefix" -name infini_trainConfig.cmake)")
! grep -rnF -e "$source" -e "$build" -e "$folder" "$packages" >&2 || fail "the CMake package names a folder of the machine that built it"
for program in gpt2 llama3 tokenize generate export_hf export_llmc; do
    quiet "$folder/prefix/bin/$program" --help
done

headers=$(cd "$folder/prefix/include" && find . -name '*.h' -printf '%P\n' | LC_ALL=C sort)
diff <(echo "$headers") <(find infini_train/include -name '*.h' | LC_ALL=C sort) >&2 || fail "installed are not just the public headers"
sed 's/.*/#include "&"/' <<<"$headers" >"$folder/headers.cc"
quiet "${CXX:-c++}" -std=c++20 -Wall -Wextra -Wconversion -Werror -fsyntax-only -I "$folder/prefix/include" "$folder/headers.cc"

cp -r example/minimal_pipeline "$folder/example"
quiet cmake -S "$folder/example" -B "$folder/example/build" -DCMAKE_PREFIX_PATH="$folder/prefix" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wconversion -Werror"
quiet cmake --build "$folder/example/build"
"$folder/example/build/minimal_pipeline" >"$folder/losses" || fail "the example failed"
awk '$3 == "loss" { if (first == "") first = $4; last = $4 }
     END { printf "test_install: built outside the tree, minimal_pipeline learns: loss %s -> %s\n", first, last; exit !(last < first / 100) }' "$folder/losses"
if grep -q '^INFINI_USE_GLOO:BOOL=ON' "$build/CMakeCache.txt"; then
    timeout 60 scripts/run_local.sh -n 2 -- "$folder/example/build/minimal_pipeline" >"$folder/losses_of_processes" || fail "the example failed on processes"
    diff "$folder/losses" "$folder/losses_of_processes" >&2 || fail "the example has other losses on processes"
    echo "test_install: the same losses on two processes"
fi
