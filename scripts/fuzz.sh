#!/usr/bin/env bash
# Runs fuzz targets under AddressSanitizer: scripts/fuzz.sh [TARGET|all] [SECONDS for each]. A finding ends it, and is kept in
# target/fuzz/findings. `scripts/fuzz.sh coverage` says which lines of the parsers the corpora reach.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:-all} seconds=${2:-60}
dir=$PWD/target/fuzz
mkdir -p "$dir/findings"
names=$(ls fuzz/corpus)

# build FLAGS FOLDER: the program that holds all targets, with these flags of the compiler
build() {
    RUSTFLAGS=$1 cargo +nightly build --release --quiet --manifest-path fuzz/Cargo.toml --target-dir "$2" \
        --target x86_64-unknown-linux-gnu
    program=$2/x86_64-unknown-linux-gnu/release/parser
}

common="--cfg fuzzing -Cdebug-assertions=on -Coverflow-checks=on -Cdebuginfo=line-tables-only"
if [ "$target" = coverage ]; then
    build "$common -Cinstrument-coverage" "$dir/coverage"
    for name in $names; do
        mkdir -p "$dir/corpus/$name"
        LLVM_PROFILE_FILE=$dir/$name.profraw SCR_FUZZ_TARGET=$name "$program" -runs=0 "fuzz/corpus/$name" \
            "$dir/corpus/$name" 2> /dev/null
    done
    llvm-profdata merge -sparse "$dir"/*.profraw -o "$dir/all.profdata"
    # shellcheck disable=SC2046
    exec llvm-cov report "$program" -instr-profile="$dir/all.profdata" $(cat fuzz/parsers.txt)
fi

sancov="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
build "$common $sancov -Zsanitizer=address" "$dir/build"
[ "$target" = all ] || names=$target
for name in $names; do
    mkdir -p "$dir/corpus/$name"
    echo "==> $name, $seconds s"
    # What was found last time comes first: a parser that has been mended shows it at once.
    SCR_FUZZ_TARGET=$name "$program" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=512 -rss_limit_mb=1024 \
        -max_len=65536 -artifact_prefix="$dir/findings/$name." -print_final_stats=1 "$dir/corpus/$name" "fuzz/corpus/$name" \
        > "$dir/$name.log" 2>&1 || { tail -40 "$dir/$name.log"; exit 1; }
    grep -E 'stat::(number_of_executed_units|peak_rss_mb)|^Done' "$dir/$name.log"
done
